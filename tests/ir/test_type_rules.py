"""Type rules on random inputs and attributes: a true type, or an error that is qgraph's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args, get_origin

import numpy as np
import pytest

from qgraph.errors import GraphError, QGraphError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.ops import OPS
from qgraph.ir.types import QuantSpec
from qgraph.ops.attribute_types import is_union, type_hints
from qgraph.ops.attributes import Declaration, declarations

DTYPES = ("float32",) * 4 + ("float64", "int32", "int64", "bool")
SIZES = (0, 1, 1, 2, 3, 4, None)
LENGTHS = {"begin", "end", "strides", "paddings", "perm"}  # of slices, pads and transposes
COMPUTED = [name for name in OPS if name not in ("input", "const", "opaque")]


def value_of(hint: Any, declared: Declaration, rng: random.Random) -> Any:
    """A value of a type, mostly in its range."""
    if declared.choices:
        return rng.choice(declared.choices)
    if is_union(hint):
        return value_of(rng.choice(get_args(hint)), declared, rng)
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if Ellipsis in parts:
            parts = (parts[0],) * rng.randint(0, 4)
        return tuple(value_of(part, declared, rng) for part in parts)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return rng.choice([*hint])
    drawn = {
        int: rng.randint(-3 if declared.low is None else int(declared.low), 4),
        float: rng.choice([0.0, 1.0, -1.0, 0.5]),
        bool: rng.random() < 0.5,
        str: rng.choice(["float32", "int32", "unknown"]),
        QuantSpec: QuantSpec(8, True, "input", 3),
    }
    return drawn.get(hint)


def attributes(op: str, rank: int, rng: random.Random) -> dict[str, Any]:
    kind = OPS[op].attributes
    hints = type_hints(kind)
    found = {
        declared.name: value_of(hints[declared.name], declared, rng)
        for declared in declarations(kind)
        if declared.required or rng.random() < 0.4
    }
    if op in ("slice", "pad", "transpose") and rng.random() < 0.7:  # lengths that fit
        for name in LENGTHS & found.keys():
            whole = (found[name] or (1,)) * 5
            found[name] = whole[:rank] if name != "perm" else tuple(range(rank))[::-1]
    return found


def drawn_graphs(op: str, count: int) -> Iterator[tuple[Graph, list[str], dict[str, Any]]]:
    """Inputs of one dtype, with attributes; shapes often agree."""
    rng, (low, high) = random.Random(op), OPS[op].arity
    for _ in range(count):
        graph, dtype = Graph("net"), rng.choice(DTYPES)
        rank = rng.randint(0, 5)
        usual = tuple(rng.choice(SIZES) for _ in range(rank))
        inputs = []
        for i in range(rng.randint(low, low + 2 if high is None else high)):
            own = tuple(rng.choice(SIZES) for _ in range(rng.randint(0, 5)))
            shape = usual if rng.random() < 0.6 else own
            inputs.append(graph.input(f"x{i}", dtype, shape if rng.random() > 0.05 else None))
        yield graph, inputs, attributes(op, rank, rng)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("op", COMPUTED)
def test_a_type_is_true_or_refused(op: str) -> None:
    for graph, inputs, attrs in drawn_graphs(op, 300):
        try:
            graph.outputs["y"] = graph.add(op, *inputs, name="y", attrs=attrs)
            graph.verify()
            shapes = [graph.types[x].shape or () for x in inputs]
            feeds = {
                x: np.ones([1 if d is None else d for d in shape], graph.types[x].dtype)
                for x, shape in zip(inputs, shapes, strict=True)
            }
            found = evaluate(graph, feeds)["y"]
        except QGraphError:
            continue
        kind, what = graph.types["y"], (op, attrs, [str(graph.types[x]) for x in inputs])
        assert found.dtype == kind.dtype, what
        if kind.shape is not None:
            assert found.ndim == len(kind.shape), what
            assert all(d in (None, n) for d, n in zip(kind.shape, found.shape, strict=True)), what


REFUSED = {
    "argmax": ({"axis": 0, "dtype": "int64"}, "float32", (), "axis 0 does not exist"),
    "concat": ({"axis": 3}, "float32", (2, 2), "axis 3 does not exist in a tensor of rank 2"),
    "squeeze": ({"axes": (2,)}, "float32", (1, 1), "axis 2 does not exist"),
    "expand_dims": ({"axis": 4}, "float32", (1, 1), "axis 4 does not exist"),
    "sum": ({"axes": (0,), "keepdims": False}, "bool", (2,), "takes numbers, found bool[2]"),
    "mean": ({"axes": (0,), "keepdims": False}, "int32", (2,), "takes floats, found int32[2]"),
    "leaky_relu": ({"alpha": 0.1}, "int32", (2,), "takes floats, found int32[2]"),
    "logical_not": ({}, "float32", (2,), "takes bools, found float32[2]"),
    "composed": (
        {"steps": (("add", (0, 1.0), ()), ("mul", (0, 2), ()))}, "float32", (2,),
        "attribute `steps`: `mul` reads a value that is not computed",
    ),
    "slice": (
        {"begin": (0,), "end": (2,), "strides": (0,)}, "float32", (2,), "`strides` has a 0",
    ),
    "batch_to_space": (
        {"block": (1, 1), "crops": ((1, 3), (0, 0))}, "float32", (1, 2, 2, 1),
        "are larger than the image",
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", REFUSED)
def test_what_has_no_result_is_refused_with_its_node(op: str) -> None:
    attrs, dtype, shape, message = REFUSED[op]
    graph = Graph("net")
    x = graph.input("x", dtype, shape)
    with pytest.raises(GraphError) as error:
        graph.add(op, x, name="y", attrs=attrs)
    assert message in str(error.value) and error.value.node == "y"


def test_integers_add_up_in_their_type() -> None:
    graph = Graph("net")
    x = graph.input("x", "int32", (2,))
    graph.outputs["y"] = graph.add("sum", x, attrs={"axes": (0,), "keepdims": False})
    found = evaluate(graph, {"x": np.int32([2**31 - 1, 1])})["y"]
    assert found.dtype == "int32" and found == -(2**31)
