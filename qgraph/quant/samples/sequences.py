"""Sequences as samples of a network that computes one step: its states are carried in float."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.errors import UsageError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.states import states_of
from qgraph.ir.types import Array, Shape

LAYERED = 3  # axes of the state of an exported recurrent layer: layers, samples, units


def sequence_inputs(graph: Graph) -> Graph:
    """A graph with the inputs that are not states, each of sequences: [n, steps, ...].

    Raises UsageError for inputs that do not have one batch size on their first axes.
    """
    made, states = Graph(graph.name), states_of(graph)
    for name in graph.inputs:
        kind = graph.types[name]
        if not kind.shape or None in kind.shape[1:] or kind.shape[0] not in (None, 1):
            raise UsageError(
                f"a network with states takes samples on the first axis of each input, one at a "
                f"time or any number; input `{name}` is {kind}",
                hint=_layout_hint(name, kind.shape, name in states),
            )
        if name not in states:
            made.input(name, kind.dtype, (None, None, *kind.shape[1:]))
    return made


def _layout_hint(name: str, shape: Shape | None, is_state: bool) -> str:
    if is_state and shape is not None and len(shape) == LAYERED and (shape[0] or 1) > 1:
        return (
            "if its first axis counts layers, export the state of each layer as an input and an "
            "output of its own"
        )
    return f"give its shape: --input-shape {name}=1,..."


def takes_one_sample(graph: Graph) -> bool:
    """Whether the network runs on one sample at a time."""
    return any((graph.types[name].shape or (None,))[0] == 1 for name in graph.inputs)


def first_states(graph: Graph, count: int) -> dict[str, Array]:
    """The states before the first step of `count` sequences: zeros."""
    kinds = {name: graph.types[name] for name in states_of(graph)}
    sizes = {name: [size or 1 for size in (kind.shape or ())[1:]] for name, kind in kinds.items()}
    return {n: np.zeros((count, *sizes[n]), kind.dtype) for n, kind in kinds.items()}


def steps_of(graph: Graph, sequences: Mapping[str, Array]) -> dict[str, Array]:
    """Every step of each sequence as a sample, with its states as the float network has them.

    Args:
        graph: A float network with states.
        sequences: [n, steps, ...] for each input that is not a state.

    Returns:
        [n * steps, ...] for each input, one sequence after the other.

    Raises:
        UsageError: The sequences differ in their number of steps.
    """
    states = states_of(graph)
    lengths = {name: array.shape[1] for name, array in sequences.items()}
    if len({*lengths.values()}) > 1:
        raise UsageError(f"the sequences have different numbers of steps: {lengths}")
    count, length = len(next(iter(sequences.values()))), next(iter(lengths.values()))
    held = {name: np.empty((count, length, *x.shape[1:]), x.dtype)
            for name, x in first_states(graph, 1).items()}  # fmt: skip
    ends = {name: graph.outputs[output] for name, output in states.items()}
    size = 1 if takes_one_sample(graph) else count
    for start in range(0, count, size):
        group, now = slice(start, start + size), first_states(graph, size)
        for t in range(length):
            for name in states:
                held[name][group, t] = now[name]
            feeds = {
                name: np.asarray(array[group, t]).astype(graph.types[name].dtype, copy=False)
                for name, array in sequences.items()
            }
            found = evaluate(graph, feeds | now, [*ends.values()])
            now = {name: found[value] for name, value in ends.items()}
    joined = {**sequences, **held}
    return {
        name: np.asarray(joined[name]).reshape(-1, *joined[name].shape[2:]) for name in graph.inputs
    }
