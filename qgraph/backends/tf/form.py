"""The emitted TensorFlow graph as a form: what is executed, with default session options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from qgraph.backends.forms import Network, Runner
from qgraph.backends.tf.emit import emit_graph_def, tensor_names
from qgraph.backends.tf.program import TFProgram
from qgraph.exact.bounds import bounds
from qgraph.ir.types import Array
from qgraph.numerics import aligned

FILE = "inference.pb"


@dataclass(frozen=True)
class TensorFlowForm:
    """A frozen graph of stock ops."""

    name: ClassVar[str] = "tensorflow"

    def refusal(self, network: Network) -> str | None:
        return None

    def write(self, network: Network, folder: Path) -> None:
        graph_def = emit_graph_def(network.graph, bounds(network.graph))
        (folder / FILE).write_bytes(graph_def.SerializeToString(deterministic=True))

    def runner(self, network: Network, folder: Path) -> Runner:
        """Shows every tensor that was emitted; exits are fetched alone, so as users run it.

        Fetching keeps a tensor from TensorFlow's graph optimiser, and optimised graphs are what
        runs in practice.
        """
        program, tensors = network.program, network.program.tensors
        emitted = tensor_names(network.graph, bounds(network.graph))
        names = {n: t for n, t in emitted.items() if n in tensors and n not in program.constants}
        session = TFProgram(folder / FILE)

        def run(entries: Mapping[str, Array]) -> dict[str, Array]:
            feeds = {
                emitted.get(entry.source, entry.source): _values(
                    entries[entry.tensor], tensors[entry.tensor].exponent
                )
                for entry in program.entries
            }
            found = dict(zip(names, session.run(feeds, [*names.values()]), strict=True))
            for exit_ in (e for e in program.exits if e in names):
                (found[exit_],) = session.run(feeds, [names[exit_]])
            return {name: _codes(array, tensors[name].exponent) for name, array in found.items()}

        return run


def _values(codes: Array, exponent: int | tuple[int, ...]) -> Array:
    at = aligned(np.asarray(exponent), codes.shape)
    values: Array = np.ldexp(codes.astype(np.float64), -at).astype(np.float32)
    return values


def _codes(values: Array, exponent: int | tuple[int, ...]) -> Array:
    """Codes of values that lie on their grid; others, which would be wrong, stay wrong."""
    at = aligned(np.asarray(exponent), values.shape)
    steps = np.ldexp(values.astype(np.float64), at)
    whole = steps == np.rint(steps)
    lost = np.iinfo(np.int64).min
    return np.where(whole, steps, lost).astype(np.int64)
