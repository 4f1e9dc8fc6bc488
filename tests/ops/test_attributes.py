"""Attributes of ops: frozen dataclasses that check their own ranges."""

from dataclasses import dataclass
from types import GenericAlias
from typing import Any

import numpy as np
import pytest

from qgraph.errors import GraphError
from qgraph.ops.attribute_types import Misfit, reader
from qgraph.ops.attributes import Attributes, attribute, attributes_of, declarations


@dataclass(frozen=True)
class Window(Attributes):
    strides: tuple[int, int] = attribute("step of the window", low=1)
    pads: tuple[tuple[int, int], ...] = attribute("zeros", low=0, default=((0, 0), (0, 0)))
    mode: str = attribute("rounding", choices=("floor", "ceil"), default="floor")
    high: int | tuple[int, ...] | None = attribute("upper end", high=7, default=None)


def test_values_in_range_are_taken_as_they_are() -> None:
    made = Window((1, 2), high=(7, -9))
    assert dict(made.items()) == {
        "strides": (1, 2), "pads": ((0, 0), (0, 0)), "mode": "floor", "high": (7, -9),
    }  # fmt: skip
    assert made.given() == {"strides": (1, 2), "high": (7, -9)}


@pytest.mark.parametrize(
    ("given", "name", "legal"),
    [
        ({"strides": (1, 0)}, "strides", "at least 1"),
        ({"strides": (1, 1), "pads": ((0, 0), (0, -1))}, "pads", "at least 0"),
        ({"strides": (1, 1), "mode": "round"}, "mode", "floor, ceil"),
        ({"strides": (1, 1), "high": (1, 8)}, "high", "at most 7"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(given: dict[str, Any], name, legal) -> None:
    with pytest.raises(GraphError, match=f"attribute `{name}` is") as error:
        Window(**given)
    assert error.value.hint == f"legal: {legal}"


def test_attributes_that_are_unknown_or_missing_are_refused_by_name() -> None:
    with pytest.raises(GraphError, match="unknown attribute `stride`"):
        attributes_of(Window, {"stride": (1, 1)})
    with pytest.raises(GraphError, match="attribute `strides` is missing"):
        attributes_of(Window, {"mode": "ceil"})
    assert attributes_of(Window, {"strides": (2, 2)}) == Window((2, 2))


def test_declarations_say_what_a_reference_page_needs() -> None:
    strides, pads, mode, high = declarations(Window)
    assert strides.required and not pads.required
    assert (strides.meaning, strides.range) == ("step of the window", "at least 1")
    assert (mode.range, high.range) == ("floor, ceil", "at most 7")


class TypeStatement:
    """Like NDArray of numpy 2.5, which Python 3.11 has no syntax for."""

    __value__ = np.ndarray[Any, np.dtype[Any]]


def test_an_array_is_read_where_its_type_is_a_type_statement() -> None:
    statement = TypeStatement()
    for hint in (statement, GenericAlias(statement, (np.float32,))):
        array = np.zeros(3)
        assert reader(hint)(array) is array
        with pytest.raises(Misfit):
            reader(hint)("an array")
