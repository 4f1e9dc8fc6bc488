"""The emitted TensorFlow graph as a form, which runs with default session options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from qgraph.archives import reading
from qgraph.backends.network_forms import Network, Runner
from qgraph.backends.tf.emit import emit_graph_def, tensor_names, tf_io_names
from qgraph.backends.tf.lower import LOWERINGS
from qgraph.backends.tf.messages import new_message
from qgraph.backends.tf.program import TFProgram
from qgraph.backends.tf.saved_model import FILE as SAVED_MODEL
from qgraph.backends.tf.saved_model import write_saved_model
from qgraph.distribution import version_of
from qgraph.errors import ExactnessError
from qgraph.exact.bounds import bounds
from qgraph.foreign import Proto
from qgraph.frontends.tf.opaque import foreign_ops
from qgraph.ir.reading import kind_of
from qgraph.ir.types import Array, Exponent
from qgraph.numerics import aligned
from qgraph.ops.lowerings import Lowerings

FILE, FOLDER = "inference.pb", "saved_model"


@dataclass(frozen=True)
class TensorFlowForm:
    """A frozen graph of stock ops, alone and as a SavedModel."""

    name: ClassVar[str] = "tensorflow"
    lowerings: ClassVar[Lowerings[object]] = LOWERINGS

    def refusal(self, network: Network) -> str | None:
        foreign = foreign_ops(network.graph)
        if not foreign:
            return None
        return f"{foreign[0].name}: TensorFlow does not have `{kind_of(foreign[0])}`"

    def write(self, network: Network, folder: Path) -> None:
        graph_def = emit_graph_def(network.graph, bounds(network.graph))
        (folder / FILE).write_bytes(graph_def.SerializeToString(deterministic=True))
        write_saved_model(graph_def, network.graph, folder / FOLDER)

    def check(self, network: Network, folder: Path) -> None:
        """Compare the graph in the SavedModel with the frozen one. Raises ExactnessError."""
        path = folder / FOLDER / SAVED_MODEL
        if not path.is_file():  # an export of an earlier version
            return
        model, graph_def = new_message("SavedModel"), new_message("GraphDef")
        with reading(path, "was changed or damaged", "export the network again"):
            model.ParseFromString(path.read_bytes())
            graph_def.ParseFromString((folder / FILE).read_bytes())
        if [meta.graph_def for meta in model.meta_graphs] != [graph_def]:
            raise ExactnessError(f"{FOLDER}: its graph differs from that of {FILE}")

    def executor(self) -> str:
        return f"TensorFlow {version_of('tensorflow')}"

    def renamed(self, network: Network) -> Mapping[str, str]:
        names = tensor_names(network.graph, bounds(network.graph))
        return {value: name for value, name in names.items() if value != name}

    def executed(self, network: Network, folder: Path) -> Mapping[str, Array]:
        """One run with all tensors fetched."""
        if not network.sample:
            return {}
        tensors, names = network.program.tensors, self._emitted(network)
        session, io_names = TFProgram(folder / FILE), tf_io_names(network.graph).inputs
        feeds = {io_names[name]: network.sample[name] for name in network.graph.inputs}
        found = zip(names, session.run(feeds, [*names.values()]), strict=True)
        return {name: _codes(array, tensors[name].exponent) for name, array in found}

    def _emitted(self, network: Network) -> dict[str, str]:
        """The emitted tensor of each tensor of the program except constants."""
        program, names = network.program, tensor_names(network.graph, bounds(network.graph))
        return {n: t for n, t in names.items() if n in program.tensors.keys() - program.constants}

    def runner(self, network: Network, folder: Path) -> Runner:
        """Returns every emitted tensor; exits are fetched alone, as in use.

        Fetching keeps a tensor from TensorFlow's graph optimizer, but in practice optimized graphs
        are run.
        """
        program, tensors = network.program, network.program.tensors
        emitted = tensor_names(network.graph, bounds(network.graph))
        names = self._emitted(network)
        fed = {e.tensor: emitted.get(e.source, e.source) for e in program.entries}
        session = TFProgram(_cut((folder / FILE).read_bytes(), set(fed.values())))

        def run(entries: Mapping[str, Array]) -> dict[str, Array]:
            feeds = {
                source: _values(entries[tensor], tensors[tensor].exponent)
                for tensor, source in fed.items()
            }
            found = dict(zip(names, session.run(feeds, [*names.values()]), strict=True))
            for exit_ in (e for e in program.exits if e in names):
                (found[exit_],) = session.run(feeds, [names[exit_]])
            return {name: _codes(array, tensors[name].exponent) for name, array in found.items()}

        return run


def _cut(data: bytes, names: set[str]) -> Proto:
    """The graph with placeholders instead of the nodes `names`.

    TensorFlow accepts values for a tensor inside a graph, but its graph optimizer may replace the
    tensor by its own inputs, and then the run needs the network's input.
    """
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef.FromString(data)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    for node in graph_def.node:
        if node.name in names:
            dtype = graph.get_tensor_by_name(f"{node.name}:0").dtype.as_datatype_enum
            node.op = "Placeholder"
            del node.input[:]
            node.attr.clear()
            node.attr["dtype"].type = dtype
    return graph_def


def _values(codes: Array, exponent: Exponent) -> Array:
    at = aligned(np.asarray(exponent), codes.shape)
    values: Array = np.ldexp(codes.astype(np.float64), -at).astype(np.float32)
    return values


def _codes(values: Array, exponent: Exponent) -> Array:
    """Codes of values on their grid; other values, which would be wrong, give wrong codes."""
    at = aligned(np.asarray(exponent), values.shape)
    steps = np.ldexp(values.astype(np.float64), at)
    whole = steps == np.rint(steps)
    lost = np.iinfo(np.int64).min
    return np.where(whole, steps, lost).astype(np.int64)
