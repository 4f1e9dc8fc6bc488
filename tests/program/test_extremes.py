"""Samples of one place: which place it is, and what the codes that were searched for show."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from qgraph.program import Program, Step
from qgraph.program.extremes import claims_hold, extremes, stacked
from qgraph.program.layers import layers
from qgraph.program.places import Place, codes_at, place_of
from qgraph.program.run import run
from tests.helpers.c_programs import program_of, tensor

TIES = ("tie above an even code", "tie above an odd code")
RANGES = ("below the range", "above the range")
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads": ((1, 1), (1, 1)), "groups": 1}


def requantized(shift: int, low: int, high: int) -> dict:
    return {"shift": shift, "rounding": "half_even", "overflow": "saturate",
            "low": low, "high": high}  # fmt: skip


def only_place(program: Program) -> Place:
    (layer,) = layers(program)
    found = place_of(program, layer)
    assert isinstance(found, Place), found
    return found


def dense(weights, codes: tuple[int, int], attrs: dict) -> Program:
    """Products of a row of codes with constant weights, rounded."""
    weights = np.array(weights)
    most = int(np.abs(weights).sum(0).max()) * max(map(abs, codes))
    return program_of(
        tensor("x", (1, len(weights)), *codes),
        tensor("acc", (1, weights.shape[1]), -most, most),
        tensor("y", (1, weights.shape[1]), attrs["low"], attrs["high"]),
        steps=[Step("matmul", ("x", "w"), "acc", {}), Step("requantize", ("acc",), "y", attrs)],
        constants={"w": weights},
        exits=["y"],
    )


def shows(goal: str, before: int, attrs: dict) -> bool:
    """The meaning of a goal, in fractions."""
    exact = Fraction(before, 2 ** attrs["shift"])
    if goal in TIES:
        below = exact.numerator // exact.denominator
        return exact - below == Fraction(1, 2) and below % 2 == TIES.index(goal)
    return round(exact) < attrs["low"] if goal == RANGES[0] else round(exact) > attrs["high"]


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("weights", [[[3], [1]], [[5], [-2]], [[4], [4]], [[-1], [0]]], ids=str)
def test_a_goal_is_reached_where_any_input_reaches_it(weights, shift):
    attrs = requantized(shift, -4, 3)
    program = dense(weights, (-4, 3), attrs)
    found, missing = extremes(only_place(program))
    sums = {sum(x * w for x, (w,) in zip(row, weights, strict=True))
            for row in product(range(-4, 4), repeat=2)}  # fmt: skip
    wanted = {goal for goal in (*TIES, *RANGES) if any(shows(goal, s, attrs) for s in sums)}
    assert {one.goal for one in found} == {"largest sum", "smallest sum", *wanted}
    assert {one.goal for one in missing} == {*TIES, *RANGES} - wanted
    for one in found:
        if one.goal.endswith("sum"):
            assert one.after == (max(sums) if one.goal == "largest sum" else min(sums))
        else:
            assert one.before in sums and shows(one.goal, one.before, attrs)
            assert one.after == min(max(round(Fraction(one.before, 2**shift)), -4), 3)


def test_what_has_no_weight_is_zero_or_the_code_nearest_to_it():
    for codes, rest in (((-4, 3), 0), ((2, 5), 2), ((-6, -3), -3)):
        found, _ = extremes(only_place(dense([[3], [0], [-2]], codes, requantized(1, -8, 7))))
        for one in found[:2]:
            assert one.entries["x"][0, 1] == rest
        assert found[0].entries["x"].tolist() == [[codes[1], rest, codes[0]]]
        assert found[1].entries["x"].tolist() == [[codes[0], rest, codes[1]]]


def test_claims_that_are_false_are_found():
    place = only_place(dense([[3, -7], [1, 2]], (-8, 7), requantized(2, -8, 7)))
    found, _ = extremes(place)
    assert all(claims_hold(place, found, stacked(place, found)))
    for change in ({"before": 1000}, {"after": 1000}, {"goal": RANGES[0]}, {"goal": TIES[1]}):
        wrong = [replace(one, **change) for one in found if one.goal == TIES[0]]
        assert len(wrong) == 1
        assert not any(claims_hold(place, wrong, stacked(place, wrong)))


# -- places ---------------------------------------------------------------------------------


def convolution(image, window: dict, kernel, out, second=None) -> Program:
    """A convolution and what is added behind it at each place: a constant map, or an entry."""
    rng = np.random.default_rng(0)
    shape = (1, *out, 3)
    constants = {"w": rng.integers(-9, 9, (*kernel, 2, 3))}
    entries = []
    if second is None:
        constants["map"] = np.arange(np.prod(shape)).reshape(shape)
    else:
        entries.append(tensor("map", shape))
    return program_of(
        tensor("x", (1, *image, 2)),
        *entries,
        tensor("acc", shape, -99999, 99999),
        tensor("sum", shape, -199999, 199999),
        tensor("y", shape),
        steps=[
            Step("conv2d", ("x", "w"), "acc", {**WINDOW, **window}),
            Step("add", ("acc", "map"), "sum", {}),
            Step("requantize", ("sum",), "y", requantized(3, -128, 127)),
        ],
        constants=constants,
        exits=["y"],
    )


@pytest.mark.parametrize(
    ("image", "window", "kernel", "out", "at"),
    [
        ((5, 6), {}, (3, 3), (5, 6), (1, 1)),  # the first window that lies inside
        ((1, 5), {}, (3, 3), (1, 5), (0, 1)),  # none does: the one that sees the most
        ((2, 9), {"dilations": (1, 3), "pads": ((0, 0), (3, 3))}, (1, 3), (2, 9), (0, 3)),
        ((9, 2), {"dilations": (2, 1), "pads": ((4, 4), (0, 0))}, (5, 1), (9, 2), (4, 0)),
        ((6, 6), {"strides": (2, 3), "pads": ((1, 1), (2, 1))}, (3, 3), (3, 3), (1, 1)),
    ],
)
def test_the_place_is_the_first_that_sees_the_most(image, window, kernel, out, at):
    program = convolution(image, window, kernel, out)
    place = only_place(program)
    wanted = program.constants["map"][:, at[0] : at[0] + 1, at[1] : at[1] + 1]
    np.testing.assert_array_equal(place.program.constants["map"], wanted)
    # The place alone computes what the whole layer has there.
    x = np.random.default_rng(1).integers(-128, 128, program.tensors["x"].shape)
    attrs = {**WINDOW, **window}
    (top, bottom), (left, right) = attrs["pads"]
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    rows, columns = (
        at[i] * attrs["strides"][i] + attrs["dilations"][i] * np.arange(kernel[i]) for i in (0, 1)
    )
    seen = run(place.program, {"x": padded[:, rows][:, :, columns]}, ["y"])["y"]
    whole = run(program, {"x": x}, ["y"])["y"]
    np.testing.assert_array_equal(seen[0, 0, 0], whole[0, at[0], at[1]])


def test_another_entry_is_read_at_one_place():
    place = only_place(convolution((5, 6), {}, (3, 3), (5, 6), second="entry"))
    shapes = {name: t.shape for name, t in place.program.tensors.items()}
    assert shapes == {"x": (1, 3, 3, 2), "w": (3, 3, 2, 3), "map": (1, 1, 1, 3),
                      "acc": (1, 1, 1, 3), "sum": (1, 1, 1, 3), "y": (1, 1, 1, 3)}  # fmt: skip


def test_what_only_compares_has_no_place_and_what_adds_has_one():
    adds = program_of(
        tensor("a", (1, 2, 2, 3)), tensor("b", (1, 2, 2, 3)), tensor("y", (1, 2, 2, 3), -256, 254),
        steps=[Step("add", ("a", "b"), "y", {})], exits=["y"],
    )  # fmt: skip
    assert not only_place(adds).sums
    pools = program_of(
        tensor("a", (1, 2, 2, 3)), tensor("y", (1, 1, 1, 3)), exits=["y"],
        steps=[Step("max_pool", ("a",), "y", {"ksize": (2, 2), "strides": (2, 2),
                                              "pads": ((0, 0), (0, 0))})],
    )  # fmt: skip
    (layer,) = layers(pools)
    assert place_of(pools, layer) == "only compares codes"


def test_codes_of_a_channel():
    values = {"many": np.arange(6).reshape(3, 1, 2), "one": np.arange(3).reshape(3, 1, 1)}
    assert codes_at(values, "many", 1).tolist() == [1, 3, 5]
    assert codes_at(values, "one", 1).tolist() == [0, 1, 2]  # the same for every channel
