"""Random integer programs with every op, on codes of every width, with correct ranges and scales.

`programs()` is a hypothesis strategy, `random_program(seed)` one program of a seed. Ops, shapes and
ranges come from `qgraph.program.ops`, so a new op is drawn without a change here if its attributes
can be drawn from their declarations. Otherwise tests/program/test_generator.py asks for a recipe in
`program_ops.RECIPES`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

import numpy as np
from hypothesis import strategies as st

from qgraph.ir.types import OVERFLOWS, ROUNDINGS, Overflow, Rounding
from qgraph.program import Program, Tensor
from qgraph.program.ops import OPS, OpClass
from tests.helpers.generators.choices import Choices
from tests.helpers.generators.grower import Draft, Grower
from tests.helpers.generators.program_ops import FREQUENCY, RANKS, RECIPES, pairs

LARGEST = 1 << 52  # of codes and of partial sums
LARGE = 1 << 24  # from here on most tensors are requantized first
ELEMENTS = 1 << 14  # of a tensor that further steps read
BY_CHANNEL = (OpClass.UNARY, OpClass.BINARY)  # they take a scale for each channel
ONE_SCALE = ("mul", "lookup")  # but these do not
BITS = (2, 3, 4, 8, 8, 8, 13, 16, 16, 32)


def random_program(
    source: random.Random | int,
    steps: int | None = None,
    roundings: Sequence[Rounding] | None = None,
    overflows: Sequence[Overflow] | None = None,
    bits: Sequence[int] = BITS,
    int8: bool = False,
) -> Program:
    """A program of about this number of steps; its exits are the tensors that no step reads, and
    others.

    roundings, overflows, bits: the choices for requantizations. By default some programs have all
    roundings and some only one, as targets do. int8: as in `Grower`.
    """
    choices = Choices(source)
    roundings = roundings or choices.pick(
        *(ROUNDINGS, ROUNDINGS, ("half_even",), ("half_even",), *((r,) for r in ROUNDINGS))
    )
    overflows = overflows or choices.pick(("saturate",), OVERFLOWS)
    grower = Grower(choices, roundings, overflows, bits, int8)
    menu = [op for op in OPS for _ in range(FREQUENCY.get(op, 1))]
    wanted = choices.number(1, 16) if steps is None else steps
    for _ in range(3 * wanted):
        if len(grower.steps) >= wanted:
            break
        grow(grower, menu)
    read = {v for step in grower.steps for v in step.inputs}
    ends = [v for v in grower.tensors if v not in read]
    others = [v for v in grower.tensors if v not in grower.constants and choices.chance(0.1)]
    return grower.program(*dict.fromkeys([*ends, *others]), name="random")


def grow(grower: Grower, menu: Sequence[str]) -> None:
    """Append one op, if the drawn operands and attributes fit."""
    choices = grower.choices
    op = choices.pick(*menu)
    x = source_of(grower, op)
    if x is None:
        return
    if x.magnitude > LARGE and choices.chance(0.7):
        op = "requantize"
    drawn = draw(grower, op, x)
    if drawn is None:
        return
    made = grower.step(op, *drawn.inputs, span=drawn.span, **drawn.attrs)
    if fits(grower.tensors[made]):
        grower.live.append(made)
    else:
        grower.drop(made)


def source_of(grower: Grower, op: str) -> Tensor | None:
    """A tensor that the op can read; late tensors are more likely."""
    by_channel = OPS[op].family in BY_CHANNEL and op not in ONE_SCALE
    tensors = [grower.tensors[v] for v in reversed(grower.live)]
    fitting = [
        t
        for t in tensors
        if len(t.shape) in RANKS.get(op, range(2, 5))
        and (by_channel or isinstance(t.exponent, int))
    ]
    if not fitting:
        return None
    return grower.choices.pick(*(fitting if grower.choices.chance(0.3) else fitting[:3]))


def draw(grower: Grower, op: str, x: Tensor) -> Draft | None:
    if op in RECIPES:
        return RECIPES[op](grower, x)
    binary = OPS[op].family is OpClass.BINARY
    inputs = grower.choices.pick(*pairs(grower, x)) if binary else (x.name,)
    return Draft(inputs, grower.derived(op))


def fits(made: Tensor) -> bool:
    largest = max(made.magnitude, -made.low, made.high)
    return largest <= LARGEST and 0 < np.prod(made.shape) < ELEMENTS


def programs(
    steps: int | None = None,
    roundings: Sequence[Rounding] | None = None,
    overflows: Sequence[Overflow] | None = None,
    bits: Sequence[int] = BITS,
    int8: bool = False,
) -> st.SearchStrategy[Program]:
    """Random programs; see `random_program`."""
    make = partial(
        random_program, steps=steps, roundings=roundings, overflows=overflows, bits=bits, int8=int8
    )
    return st.randoms(use_true_random=False).map(make)
