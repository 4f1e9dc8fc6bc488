"""Test cases of a network: codes of its entries, in batches that fit memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qgraph.backends.network_forms import Network
from qgraph.errors import UsageError
from qgraph.exact.reference import Reference
from qgraph.ir.types import Array, Codes, Fixed
from qgraph.program import Program
from qgraph.program.adversarial import adversarial_entries
from qgraph.quant.samples.data import chunk_at, chunk_count, chunk_inputs

# Codes of every tensor of a batch, int64, several times over.
BATCH_BYTES = 1 << 28


@dataclass(frozen=True)
class Case:
    """Codes of every entry. label: `samples`, or a word for a kind of generated codes."""

    label: str
    entries: Mapping[str, Codes]


def from_samples(network: Network, data: Mapping[str, Array]) -> Iterator[Case]:
    """Float inputs, [samples, ...] by name, as the codes that the network begins with.

    Raises UsageError for missing inputs, CalibrationError for shapes that do not fit.
    """
    missing = [name for name in network.graph.inputs if name not in data]
    if missing:
        raise UsageError(f"input `{missing[0]}` is missing", hint=f"given: {', '.join(data)}")
    chunks = chunk_inputs(network.graph, {name: data[name] for name in network.graph.inputs})
    reference, names = Reference(network.graph), [e.tensor for e in network.program.entries]
    for i in range(chunk_count(chunks)):
        values = reference.run(chunk_at(chunks, i), names)
        codes = {n: v.codes for n, v in values.items() if isinstance(v, Fixed)}
        yield from _batches(network.program, Case("samples", codes))


def random_case(program: Program, seed: int) -> Case:
    """Uniformly distributed random codes."""
    rng = np.random.default_rng(seed)
    tensors = [program.tensors[e.tensor] for e in program.entries]
    return Case("random", {t.name: rng.integers(t.low, t.high + 1, t.shape) for t in tensors})


def extreme_cases(program: Program) -> Iterator[Case]:
    """Cases at the ends of the ranges: all lowest, all highest, alternating, random; and zero."""
    for label, entries in adversarial_entries(program).items():
        if label != "random":
            yield Case(label, entries)


def _batches(program: Program, case: Case) -> Iterator[Case]:
    """A case in parts whose tensors fit memory."""
    if not program.batch_free:
        yield from _of_own_shapes(program, case)
        return
    count = len(next(iter(case.entries.values())))
    whole = sum(
        math.prod(t.shape) for n, t in program.tensors.items() if n not in program.constants
    )
    size = max(1, BATCH_BYTES // (8 * whole))
    for i in range(0, count, size):
        yield Case(case.label, {name: codes[i : i + size] for name, codes in case.entries.items()})


def _of_own_shapes(program: Program, case: Case) -> Iterator[Case]:
    """A case in parts with the fixed shapes of a program that mixes samples."""
    shapes = {name: program.tensors[name].shape for name in case.entries}
    long = {n: shapes[n][0] for n, codes in case.entries.items() if codes.shape != shapes[n]}
    for i in range(max((len(case.entries[n]) // size for n, size in long.items()), default=1)):
        parts = {n: case.entries[n][i * size : (i + 1) * size] for n, size in long.items()}
        yield Case(case.label, {**case.entries, **parts})
