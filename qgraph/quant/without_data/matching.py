"""Normalize generated samples inside a network to the statistics of its batch norms.

Each value with batch-norm statistics gets the mean and deviation of training in each channel, so
that every layer has inputs like those in training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from qgraph.ir.graph import Graph
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.types import Array, Moments
from qgraph.parallel import over_chunks
from qgraph.quant.float_statistics import MomentsOfRows, joined_moments
from qgraph.quant.moments import moments_of
from qgraph.quant.paired import PairedRun
from qgraph.quant.samples.data import chunk_count, chunk_inputs
from qgraph.quant.topology import is_nonnegative
from qgraph.rewrite.constants import Float64


@contextmanager
def matched(graph: Graph, floating: Graph, data: Mapping[str, Array]) -> Iterator[None]:
    """Insert the normalization into both graphs for the duration of a `with` block.

    The factors are those that the float graph needs on `data`, so that errors of the quantized
    graph remain. Calibration and corrections work inside the block as on real samples.
    """
    needed = _needed(floating, data)
    inserted = [_insert(g, value, norm) for g in (graph, floating) for value, norm in needed.items()
                if value in g.nodes]  # fmt: skip
    try:
        yield
    finally:
        for undo in reversed(inserted):
            undo()


@dataclass(frozen=True)
class _Norm:
    """`(x - found) * scale + wanted`, per channel."""

    found: Float64
    scale: Float64
    wanted: Float64


def _needed(floating: Graph, data: Mapping[str, Array]) -> dict[str, _Norm]:
    chunks = chunk_inputs(floating, data)
    never_negative = is_nonnegative(floating)
    needed: dict[str, _Norm] = {}
    with over_chunks(chunk_count(chunks)) as each:
        run = PairedRun(floating, chunks, each)
        for node in floating.topological():
            run.step(node.name)
            known = moments_of(floating, node.name)
            matchable = node.op not in ("input", "const", "relu", *COMPUTE)
            if known is not None and matchable and node.name in run.values:
                norm = _norm(run.values[node.name], known, never_negative(node.name))
                needed[node.name] = norm
                changed = [
                    ((x - norm.found) * norm.scale + norm.wanted).astype(x.dtype)
                    for x in run.values[node.name]
                ]
                run.values.add(node.name, changed)
            run.release(node.name)
    return needed


def _norm(chunks: Sequence[Array], known: Moments, keep_zero: bool) -> _Norm:
    found = joined_moments([MomentsOfRows.of(x) for x in chunks])
    mean, deviation = found.mean, found.deviation
    with np.errstate(divide="ignore", invalid="ignore"):
        if keep_zero:  # a shift would make some values negative
            scale = np.where(mean > 0, np.maximum(known.mean, 0) / mean, 0)
            return _Norm(np.zeros_like(mean), scale, np.zeros_like(mean))
        scale = np.where(deviation > 1e-6 * np.abs(mean), known.deviation / deviation, 0)
    return _Norm(mean, scale, known.mean)


def _insert(graph: Graph, value: str, norm: _Norm) -> Callable[[], None]:
    """Insert `norm` after `value`, as a batch norm; returns a function that removes it."""
    users, dtype = graph.users(value), graph.types[value].dtype
    publics = [public for public, v in graph.outputs.items() if v == value]
    vectors = (norm.scale, norm.wanted, norm.found, np.ones_like(norm.scale))
    constants = [
        graph.const(v.astype(dtype), f"{value}/matched/{i}") for i, v in enumerate(vectors)
    ]
    made = graph.add(
        "batch_norm", value, *constants, name=f"{value}/matched", attrs={"epsilon": 0.0}
    )

    def swap(names: list[str], old: str, new: str) -> None:
        for name in names:
            node = graph.nodes[name]
            graph.replace(replace(node, inputs=tuple(new if v == old else v for v in node.inputs)))
        graph.outputs.update(dict.fromkeys(publics, new))

    def undo() -> None:
        swap([user.name for user in graph.users(made)], made, value)
        graph.remove(made)
        for constant in constants:
            graph.remove(constant)

    swap([user.name for user in users], value, made)
    return undo
