"""Every op and every target: lowered or refused. What is missing fails by its name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qgraph.backends.onnx.floats import lower as float_onnx
from qgraph.errors import GraphError, UnsupportedError
from qgraph.exports import FORMS, form
from qgraph.ir.ops import OPS as GRAPH_OPS
from qgraph.ops.lowerings import LoweringRefusal, Lowerings
from qgraph.program.moves import MOVES
from qgraph.program.ops import OPS as PROGRAM_OPS
from qgraph.program.rules import RULES


def targets() -> Iterator[tuple[str, Lowerings]]:
    """The forms of `qgraph export`, float ONNX, and the integer program that most are made from."""
    yield from ((name, form(name).lowerings) for name in FORMS)
    yield "float ONNX", float_onnx.LOWERINGS
    integer = [op for op, definition in GRAPH_OPS.items() if definition.integer is not None]
    yield "integer program", Lowerings("program", integer, {**RULES, **MOVES})


TARGETS = dict(targets())


@pytest.mark.parametrize("target", TARGETS)
def test_every_op_is_lowered_or_refused(target: str) -> None:
    table = TARGETS[target]
    assert not list(table.faults())
    assert {*table.ops} <= GRAPH_OPS.keys() or {*table.ops} == PROGRAM_OPS.keys()
    assert len(table.ops) >= len(PROGRAM_OPS)
    assert all(refusal.reason for refusal in table.refused.values())


def test_a_target_that_lacks_an_op_says_so_by_name() -> None:
    table = Lowerings(
        "place", ["abs", "add", "sub"], {"add": 1, "sub": 2}, {"neg": LoweringRefusal("no")}
    )
    assert list(table.faults()) == [
        "abs: no lowering and no refusal in place",
        "neg: listed in place, but the op does not exist",
    ]
    with pytest.raises(GraphError, match="x: abs: no lowering and no refusal in place"):
        table.of("abs", "x")


def test_an_op_that_is_both_lowered_and_refused_is_a_fault() -> None:
    table = Lowerings("place", ["add"], {"add": 1}, {"add": LoweringRefusal("no")})
    assert list(table.faults()) == ["add: both lowered and refused in place"]


def test_a_refusal_names_the_node_and_the_reason() -> None:
    table = Lowerings("place", ["abs"], {}, {"abs": LoweringRefusal("has no sign", "use relu")})
    with pytest.raises(UnsupportedError, match="x: has no sign") as caught:
        table.of("abs", "x")
    assert caught.value.hint == "use relu"


@pytest.mark.parametrize("target", TARGETS)
def test_an_op_that_is_left_out_fails_by_name(target: str) -> None:
    """Each entry is removed once, because the test above must find every missing one."""
    table = TARGETS[target]
    for op in table.ops:
        rest = [{o: e for o, e in t.items() if o != op} for t in (table.lowered, table.refused)]
        without = Lowerings(table.place, table.ops, *rest)
        assert list(without.faults()) == [f"{op}: no lowering and no refusal in {table.place}"]
