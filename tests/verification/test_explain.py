"""The elements that a code is said to be made of do make it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.numerics import bring_into_range, round_shift
from qgraph.program import lower, run
from qgraph.program.ops import OpClass
from qgraph.verification.cases import random_case
from qgraph.verification.explain import explain, sources_of
from tests.helpers.evaluate import random_feeds
from tests.helpers.layers import Net
from tests.helpers.quantized import INT8, PROFILES, quantize, random_network
from tests.program.test_lower import MOVES

BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum,
          "minimum": np.minimum}  # fmt: skip


def every_code(program, seed):
    codes = {n: np.asarray(c, np.int64) for n, c in program.constants.items()}
    names = [n for n in program.tensors if n not in codes]
    return {**codes, **run(program, random_case(program, seed).entries, names)}


def at_channel(number, index):
    return number if isinstance(number, int) else number[index[-1]]


def made_of(step, found, index):
    """The code that a step makes of the codes `found`."""
    if step.family is OpClass.PRODUCT:
        return sum(x * w for x, w in zip(found[::2], found[1::2], strict=True))
    if step.op in BINARY:
        return BINARY[step.op](*found)
    if step.op == "requantize":
        shift = at_channel(step.attrs.shift, index)
        shifted = round_shift(np.asarray(found[0]), shift, step.attrs.rounding)
        return bring_into_range(shifted, spec_of(step))
    if step.op == "clip":
        low, high = step.attrs.low, step.attrs.high
        code = max(found[0], low)
        return code if high is None else min(code, at_channel(high, index))
    if step.op in ("max_pool", "reduce_max"):
        return max(found)
    return found[-1] if found else 0  # tables and moves


def spec_of(step):
    from qgraph.ir.types import QuantSpec

    low, high = step.attrs.low, step.attrs.high
    bits = (high - low).bit_length()
    return QuantSpec(bits, low < 0, "activation", overflow=step.attrs.overflow)


def check(program, seed):
    codes, rng = every_code(program, seed), np.random.default_rng(seed)
    for step in program.steps:
        made = codes[step.output]
        for _ in range(3):
            index = tuple(int(rng.integers(size)) for size in made.shape)
            found = [int(codes[n][i]) for n, i in sources_of(program, step, codes, index)]
            assert made_of(step, found, index) == made[index], (step.op, step.output, index)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(sorted(PROFILES)))
def test_random_networks(seed: int, profile: str) -> None:
    check(lower(random_network(seed, profile)), seed)


def test_moves() -> None:
    for op, attrs in MOVES.items():
        net = Net(6, 4, 8)
        y = net.op(op, net.op("relu", net.op("add", "x", net.const("c", 8))), **attrs)
        net.graph.outputs["y"] = net.op("sigmoid", y) if op != "reduce_max" else y
        check(lower(quantize(net.graph)), 3)


def test_the_way_ends_at_products_and_at_what_is_known() -> None:
    net = Net(4)
    net.graph.outputs["y"] = net.op("relu", net.fc(net.op("relu", net.fc("x", "a")), "b"))
    graph = quantize(net.graph, INT8, random_feeds(net.graph, batch=8))
    program = lower(graph)
    codes = every_code(program, 1)
    known = {"x/q8", *program.constants}
    way = explain(program, codes, program.exits[0], (0, 2), known)
    assert [line.op for line in way] == ["requantize", "clip", "requantize", "matmul"]
    assert way[-1].tensor == "b" and len(way[-1].sources) == 8
    near = explain(program, codes, program.exits[0], (0, 2), {*known, "b/q16"})
    assert [line.op for line in near] == ["requantize", "clip"]
