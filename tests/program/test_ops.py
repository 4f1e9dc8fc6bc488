"""Definitions of program ops: what they refuse, and whether their rules agree with each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import GraphError
from qgraph.ops.attributes import declarations
from qgraph.program import Program, Step, run
from qgraph.program.ops import OPS, Operand
from qgraph.program.ops.layout import type_words
from tests.helpers.forms import random_codes
from tests.helpers.generators.programs import programs
from tests.helpers.program_builder import every_op, without_a_step

REQUANTIZE = {"shift": 1, "rounding": "half_even", "overflow": "saturate", "low": -8, "high": 7}


def test_codes_of_ops_are_those_of_files_on_disks() -> None:
    on_disks = {
        "conv2d": 0, "depthwise_conv2d": 1, "matmul": 2, "add": 3, "sub": 4, "mul": 5,
        "maximum": 6, "minimum": 7, "clip": 8, "requantize": 9, "lookup": 10, "max_pool": 11,
        "reduce_max": 12, "reshape": 13, "transpose": 14, "slice": 15, "concat": 16, "pad": 17,
        "take": 18, "standardize": 19, "abs": 20, "batch_matmul": 21,
        "softmax": 22, "embedding": 23,
    }  # fmt: skip
    missing = [f"{op}: no definition in qgraph/program/ops" for op in on_disks if op not in OPS]
    missing += [f"{op}: no number in {__file__}" for op in OPS if op not in on_disks]
    assert not missing
    assert {op.name: op.code for op in OPS.values()} == on_disks


@pytest.mark.parametrize("op", OPS)
def test_every_op_is_defined_in_full(op: str) -> None:
    definition = OPS[op]
    assert definition.name == op and definition.operands
    declared = {attribute.name for attribute in declarations(definition.attributes)}
    assert set(definition.in_file) <= declared
    words = {**vars(definition.manual), "file": definition.manual.file or "the default"}
    assert all(words.values()), "an entry of the manual is empty"
    special = definition.file == () or definition.numbers is not None
    assert bool(definition.manual.file) == special, "`file` of the manual"


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high"), [(-3, 2), (0, 2), (1, 8), (-8, 8), (-7, 7), (0, 0), (5, 4), (-4, -1), (1, 2)]
)
def test_a_range_that_is_not_twos_complement_is_refused(low: int, high: int) -> None:
    """The range would silently saturate at the next power of two."""
    with pytest.raises(GraphError, match=r"y: requantize: range .* is not two's complement"):
        Step("requantize", ("x",), "y", {**REQUANTIZE, "low": low, "high": high})


@pytest.mark.parametrize("bits", [1, 2, 8, 16, 32, 53])
@pytest.mark.parametrize("signed", [True, False])
def test_ranges_that_are_twos_complement_are_taken(bits: int, signed: bool) -> None:
    low = -(1 << (bits - 1)) if signed else 0
    high = low + (1 << bits) - 1
    attrs = Step("requantize", ("x",), "y", {**REQUANTIZE, "low": low, "high": high}).attrs
    assert attrs.spec.lo == low and attrs.spec.hi == high


@pytest.mark.parametrize(
    ("op", "attrs", "says"),
    [
        ("warp", {}, "unknown op `warp`"),
        ("clip", {"low": 0}, "attribute `high` is missing"),
        ("clip", {"low": 0, "high": 1, "middle": 2}, "unknown attribute `middle`"),
        ("requantize", {**REQUANTIZE, "rounding": "up"}, "attribute `rounding` is 'up'"),
        ("requantize", {**REQUANTIZE, "overflow": "trap"}, "attribute `overflow` is 'trap'"),
        ("transpose", {"perm": (0, 0)}, "not a permutation"),
        ("slice", {"begin": (0,), "end": (None,), "strides": (0,)}, "a stride cannot be 0"),
        ("slice", {"begin": (0, 1), "end": (None,), "strides": (1,)}, "different lengths"),
        ("max_pool", {"ksize": (2, 2), "strides": (1, 1), "pads": ((2, 0), (0, 0))}, "as large as"),
        ("max_pool", {"ksize": (2, 2), "strides": (0, 1)}, "attribute `strides`"),
        ("reduce_max", {"axes": (2, 1)}, "not ascending"),
        ("pad", {"paddings": ((0, -1),)}, "attribute `paddings`"),
        ("take", {"axis": -1, "indices": (0,)}, "attribute `axis`"),
        ("standardize", {"guard": 27, "epsilon": 0, "shift": 0}, "attribute `guard`"),
        ("add", {}, "add: 1 inputs are given"),
        ("reshape", {"shape": (-1,)}, "attribute `shape`"),
    ],
)
def test_attributes_that_make_no_sense_are_refused_by_name(op: str, attrs: dict, says: str) -> None:
    with pytest.raises(GraphError, match=says) as caught:
        Step(op, ("x",), "layer/y", attrs)
    assert "layer/y" in str(caught.value)


def test_attributes_of_another_op_are_refused() -> None:
    other = Step("take", ("x",), "y", {"axis": 0, "indices": (0,)}).attrs
    with pytest.raises(GraphError, match="z: clip: attributes are TakeAttrs, not ClipAttrs"):
        Step("clip", ("x",), "z", other)


# -- rules agree ----------------------------------------------------------------------------------


def _codes_of_all(program: Program, seed: int) -> dict:
    names = [n for n in program.tensors if n not in program.constants]
    constants = {n: np.asarray(c, np.int64) for n, c in program.constants.items()}
    return {**constants, **run(program, random_codes(program, seed, samples=1), names)}


def _check(program: Program, seed: int) -> None:
    codes = _codes_of_all(program, seed)
    for step in program.steps:
        shapes = [program.tensors[name].shape for name in step.inputs]
        made = codes[step.output]
        assert step.definition.shape(step.attrs, shapes) == made.shape, step
        reach = step.definition.reach(step.attrs, program.operands(step))
        assert reach.low <= made.min() and made.max() <= reach.high, (step, reach)
        assert max(-reach.low, reach.high) <= reach.magnitude or step.op == "clip", (step, reach)


@settings(max_examples=40)
@given(programs(), st.integers(0, 10**6))
def test_shapes_and_ranges_hold_what_is_computed(program: Program, seed: int) -> None:
    _check(program, seed)


def test_shapes_and_ranges_of_every_op() -> None:
    program = every_op()
    assert not without_a_step()
    for seed in range(3):
        _check(program, seed)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "maximum", "minimum"])
@given(st.tuples(*[st.integers(-300, 300)] * 4))
def test_ranges_of_pairs_are_reached(op: str, ends: tuple[int, int, int, int]) -> None:
    a, b = sorted(ends[:2]), sorted(ends[2:])
    operands = [Operand((), *end, max(-end[0], end[1], 0)) for end in (a, b)]
    found = [
        int(OPS[op].compute(OPS[op].attributes(), [np.int64(p), np.int64(q)]))
        for p in a for q in b
    ]  # fmt: skip
    reach = OPS[op].reach(OPS[op].attributes(), operands)
    assert (reach.low, reach.high) == (min(found), max(found))


# -- shapes that do not fit, and exact ranges ------------------------------------------------------

WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads": ((0, 0), (0, 0))}


@pytest.mark.parametrize(
    ("op", "attrs", "shapes", "says"),
    [
        ("add", {}, [(2, 3), (4,)], r"operands of shapes \[\(2, 3\), \(4,\)\] do not fit together"),
        (
            "conv2d", {**WINDOW, "groups": 2}, [(1, 5, 6, 3), (1, 1, 1, 4)],
            r"3 channels in 2 groups do not fit filters \(1, 1, 1, 4\)",
        ),
        ("conv2d", {**WINDOW, "groups": 2}, [(1, 5, 6, 4), (1, 1, 2, 3)], "4 channels in 2 groups"),
        ("conv2d", {**WINDOW, "groups": 2}, [(1, 5, 6, 4), (1, 1, 1, 4)], "4 channels in 2 groups"),
        ("depthwise_conv2d", WINDOW, [(1, 5, 6, 4), (1, 1, 3, 1)], "4 channels do not fit filters"),
        ("matmul", {}, [(2, 3), (4, 5)], r"\(2, 3\) and \(4, 5\) cannot be multiplied"),
        ("batch_matmul", {}, [(1, 2, 3), (4, 5)], r"\(1, 2, 3\) and \(4, 5\) cannot be"),
        ("batch_matmul", {}, [(3,), (3, 5)], r"\(3,\) and \(3, 5\) cannot be multiplied"),
        ("batch_matmul", {}, [(2, 1, 3), (4, 3, 5)], r"\[\(2,\), \(4,\)\] do not fit together"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(op: str, attrs: dict, shapes: list, says: str) -> None:
    definition = OPS[op]
    with pytest.raises(GraphError, match=says):
        definition.shape(definition.attributes(**attrs), shapes)


@given(st.tuples(*[st.integers(-300, 300)] * 4), st.integers(1, 5))
def test_a_product_with_computed_weights_reaches_its_range(ends: tuple, terms: int) -> None:
    """Both ends of the range are the sum of as many largest or smallest products, or 0."""
    a, b = sorted(ends[:2]), sorted(ends[2:])
    operands = [
        Operand(shape, *end, max(-end[0], end[1], 0))
        for shape, end in (((1, terms), a), ((terms, 1), b))
    ]
    products = [p * q for p in a for q in b]
    reach = OPS["matmul"].reach(OPS["matmul"].attributes(), operands)
    assert (reach.low, reach.high) == (min(0, *products) * terms, max(0, *products) * terms)


def test_standardized_codes_reach_their_range() -> None:
    """One channel that differs from all others is the farthest; its code may be rounded up."""
    standardize, reached = OPS["standardize"], False
    for channels in range(2, 12):
        for shift in range(4, 9):
            attrs = standardize.attributes(guard=2, epsilon=0, shift=shift)
            codes = np.zeros((1, channels), np.int64)
            codes[0, 0] = 1 << 10
            operand = Operand(codes.shape, 0, 1 << 10, 1 << 10)
            reach = standardize.reach(attrs, [operand])
            farthest = int(np.abs(standardize.compute(attrs, [codes])).max())
            assert farthest <= reach.high
            reached |= farthest == reach.high
    assert reached


@pytest.mark.parametrize(
    ("op", "attribute", "words"),
    [
        ("reshape", "shape", "a list of integers"),
        ("slice", "end", "a list of integers or None"),
        ("pad", "paddings", "a list of pairs of integers"),
        ("conv2d", "pads", "((top, bottom), (left, right))"),
        ("conv2d", "strides", "(of height, of width)"),
        ("conv2d", "groups", "an integer"),
        ("reduce_max", "keepdims", "True or False"),
        ("clip", "high", "an integer or a list of integers or None"),
    ],
)
def test_types_of_attributes_are_named(op: str, attribute: str, words: str) -> None:
    assert type_words(OPS[op].attributes, attribute) == words
