"""A policy with several inputs, such as states, as a graph that takes one row of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qgraph.errors import UnsupportedError
from qgraph.interpret import needed_for
from qgraph.ir.graph import Graph
from qgraph.ir.states import states_of
from qgraph.rl.actor.program_state import ProgramState
from qgraph.rl.policy.observation_columns import ObservationColumns, ObservationPart
from qgraph.rl.setting_text import SettingText

ROWS = "observation"  # the input of the new graph, unless the policy uses this name


def check_parts(graph: Graph, used: Sequence[str], named: Sequence[str] | None) -> None:
    """Raise UnsupportedError for several inputs that neither are states nor were named as parts.

    An input may be a state, whose output was not named: the policy would take any value for it.
    """
    follows = states_of(graph)
    parts = [name for name in used if name not in follows]
    if not parts:
        raise UnsupportedError("every input of the policy is a state", node=graph.name)
    if len(parts) > 1 and not set(parts) <= set(named or ()):
        listed = ", ".join(f"`{name}`" for name in parts)
        raise UnsupportedError(
            f"the policy has several inputs: {listed}",
            hint=SettingText(
                "name those with states in {states}, each with the output that has its next value; "
                "name all inputs in {inputs} if they are parts of one observation; or name outputs "
                "that need the observation alone in {outputs}"
            ),
        )


def with_one_input(graph: Graph) -> tuple[Graph, ObservationColumns]:
    """The graph on rows [n, columns]: each input becomes a slice of them, states last.

    Raises UnsupportedError for inputs whose size is unknown, and for images beside other inputs.
    """
    follows = states_of(graph)
    used = {node.name for node in needed_for(graph, graph.outputs.values()) if node.op == "input"}
    names = [name for name in graph.inputs if name in used and name not in follows]
    shapes = {name: _sample_shape(graph, name) for name in (*names, *follows)}
    parts = tuple(ObservationPart(name, shapes[name]) for name in names)
    states = tuple(
        ProgramState(name, math.prod(shapes[name]), output) for name, output in follows.items()
    )
    columns = ObservationColumns(parts, states)
    made = graph.copy()
    rows = made.fresh(ROWS)
    total = sum(math.prod(shape) for shape in shapes.values())
    batch = (graph.types[names[0]].shape or (None,))[0]
    made.input(rows, "float32", (batch, total))
    at, front = 0, -1 if batch is None else batch
    for name in (*names, *follows):
        size, kind = math.prod(shapes[name]), graph.types[name]
        part = {"begin": (None, at), "end": (None, at + size), "strides": (1, 1)}
        value = made.add("slice", rows, attrs=part, name=made.fresh(f"{name}/columns"))
        value = made.add(
            "reshape", value, attrs={"shape": (front, *shapes[name])},
            name=made.fresh(f"{name}/shaped"),
        )  # fmt: skip
        if kind.dtype != "float32":
            value = made.add(
                "cast", value, attrs={"dtype": kind.dtype}, name=made.fresh(f"{name}/cast")
            )
        made.redirect(name, value)
        at += size
    for public, value in made.outputs.items():
        shape = made.types[value].shape
        if public in follows.values() and shape is not None and len(shape) > 2:
            flat = {"shape": (front, math.prod(size or 1 for size in shape[1:]))}
            made.outputs[public] = made.add("reshape", value, attrs=flat, name=f"{public}/row")
    for name in list(made.inputs):
        if name != rows:
            made.remove(name)
    return made, columns


def _sample_shape(graph: Graph, name: str) -> tuple[int, ...]:
    """The shape of one sample of an input."""
    shape = graph.types[name].shape
    if shape is None or len(shape) < 2 or None in shape[1:]:
        raise UnsupportedError(
            f"its size is unknown: {graph.types[name]}",
            node=name,
            hint=SettingText("give {input_shapes}"),
        )
    if shape[0] not in (None, 1):
        raise UnsupportedError(
            f"it takes {shape[0]} samples at a time: {graph.types[name]}",
            node=name,
            hint="export the policy with an open batch size",
        )
    return tuple(int(size or 0) for size in shape[1:])
