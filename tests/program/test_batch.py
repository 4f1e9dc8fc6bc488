"""A program may be run on many samples at once only where no step mixes them."""

from typing import Any

import pytest

from qgraph.program import Step
from qgraph.program.batch import blocks_are_separate, samples_are_separate
from tests.helpers.c_programs import program_of, tensor

SHIFT = {"shift": 1, "rounding": "half_even", "overflow": "saturate", "low": -128, "high": 127}
X, Y = tensor("x", (1, 2, 3)), tensor("y", (1, 2, 3))
T, S = tensor("t", (1, 3, 2)), tensor("s", (3, 4))


def apart(op: str, *inputs: str, shape=(1, 2, 3), constants=None, **attrs: Any) -> bool:
    """Whether samples stay separate in a program of one step, on entries and
    constants.
    """
    entries = [t for t in (X, Y, T, S) if t.name in inputs]
    step = Step(op, inputs, "z", attrs)
    return samples_are_separate(
        program_of(*entries, tensor("z", shape), steps=[step], constants=constants, exits=["z"])
    )


@pytest.mark.parametrize(
    ("wanted", "program"),
    [
        (True, lambda: apart("add", "x", "y")),
        (True, lambda: apart("add", "x", "c", constants={"c": [1, 2, 3]})),
        (True, lambda: apart("add", "x", "c", constants={"c": [[[1, 2, 3]]]})),
        (True, lambda: apart("concat", "x", "y", shape=(1, 4, 3), axis=1)),
        (False, lambda: apart("concat", "x", "c", shape=(1, 3, 3), axis=1,
                              constants={"c": [[[1, 2, 3]]]})),
        (False, lambda: apart("concat", "x", "y", shape=(2, 2, 3), axis=0)),
        (True, lambda: apart("transpose", "x", shape=(1, 3, 2), perm=(0, 2, 1))),
        (False, lambda: apart("transpose", "x", shape=(1, 2, 3), perm=(1, 0, 2))),
        (True, lambda: apart("pad", "x", shape=(1, 3, 3), paddings=((0, 0), (0, 1), (0, 0)))),
        (False, lambda: apart("pad", "x", shape=(2, 2, 3), paddings=((1, 0), (0, 0), (0, 0)))),
        (True, lambda: apart("reduce_max", "x", shape=(1, 3), axes=(1,))),
        (False, lambda: apart("reduce_max", "x", shape=(1, 3), axes=(0, 1))),
        (True, lambda: apart("take", "x", shape=(1, 1, 3), axis=1, indices=(0,))),
        (False, lambda: apart("take", "x", shape=(1, 2, 3), axis=0, indices=(0,))),
        (True, lambda: apart("requantize", "x", **{**SHIFT, "shift": (1, 2, 3)})),
        (True, lambda: apart("slice", "x", begin=(0, 0, 0), end=(None, 2, 3), strides=(1, 1, 1))),
        (False, lambda: apart("slice", "x", begin=(0, 0, 0), end=(1, 2, 3), strides=(1, 1, 1))),
        (False, lambda: apart("slice", "x", begin=(0, 0, 0), end=(None, 2, 3), strides=(2, 1, 1))),
        (False, lambda: apart("matmul", "x", "y")),
        (True, lambda: apart("matmul", "x", "w", constants={"w": [[1, 2, 3]] * 3})),
        (False, lambda: apart("matmul", "c", "x", constants={"c": [[1, 2]]})),
        (True, lambda: apart("batch_matmul", "x", "w", constants={"w": [[1, 2, 3]] * 3})),
        (True, lambda: apart("batch_matmul", "c", "x", shape=(1, 1, 3),
                             constants={"c": [[[1, 2]]]})),
        (False, lambda: apart("batch_matmul", "x", "w", shape=(2, 2, 3),
                              constants={"w": [[[1, 2, 3]] * 3] * 2})),
        (True, lambda: apart("batch_matmul", "x", "t", shape=(1, 2, 2))),
        (False, lambda: apart("batch_matmul", "x", "s", shape=(1, 2, 4))),
    ],
)  # fmt: skip
def test_steps_that_keep_samples_apart(wanted, program) -> None:
    assert program() is wanted


@pytest.mark.parametrize(("shift", "wanted"), [(1, True), ((1,), False)])
def test_a_number_for_each_last_index_is_one_for_each_sample_of_a_vector(shift, wanted) -> None:
    """[n] is a batch of numbers, so a shift for each of them belongs to a sample."""
    step = Step("requantize", ("x",), "z", {**SHIFT, "shift": shift})
    program = program_of(tensor("x", (1,)), tensor("z", (1,)), steps=[step], exits=["z"])
    assert samples_are_separate(program) is wanted


@pytest.mark.parametrize(("rows", "wanted"), [(6, True), (9, False), (3, False)])
def test_samples_of_several_rows_stay_apart_where_two_have_twice_the_rows(rows, wanted) -> None:
    def program(count: int):
        shape = (count, 2)
        step = Step("add", ("x", "c"), "z", {})
        return program_of(
            tensor("x", shape), tensor("z", shape), steps=[step], exits=["z"],
            constants={"c": [1, 2]},
        )  # fmt: skip

    assert blocks_are_separate(program(3), program(rows)) is wanted
