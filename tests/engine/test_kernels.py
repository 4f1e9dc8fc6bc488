"""The engine's kernels at every level against numpy in int64: the same codes, always."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.ir.types import ROUNDINGS
from qgraph.kernels import NATIVE_LEVELS
from qgraph.numerics import round_shift

_native = pytest.importorskip("qgraph._native")
if not hasattr(getattr(_native, "engine", None), "kernels"):
    pytest.skip("the native extension was built from other sources", allow_module_level=True)
kernels = _native.engine.kernels

# The enumerations in fused_ops/engine/kernels/kernels.h have these orders.
CODES = ("uint8", "int8", "uint16", "int16", "int32")
KINDS = ("requantize", "add", "clip")
S32 = np.iinfo(np.int32)


@pytest.fixture(params=NATIVE_LEVELS, scope="module")
def level(request) -> int:
    index = NATIVE_LEVELS.index(request.param)
    if not _native.engine.supports(index):
        pytest.skip(f"no {request.param} here")
    return index


@dataclass
class Stage:
    kind: str
    rounding: str = "half_even"
    shift: object = 0
    term: object = 0
    low: object = S32.min
    high: object = S32.max

    def native(self):
        numbers = (self.shift, self.term, self.low, self.high)
        arrays = (np.atleast_1d(np.asarray(n, np.int32)) for n in numbers)
        return (KINDS.index(self.kind), ROUNDINGS.index(self.rounding), *arrays)

    def numpy(self, v):
        if self.kind == "add":
            return v + np.asarray(self.term)
        if self.kind == "requantize":
            v = round_shift(v, self.shift, self.rounding)
        return np.clip(v, self.low, self.high)


@dataclass
class Conv:
    x: np.ndarray
    w: np.ndarray  # [kh, kw, inputs, outputs]; depthwise [kh, kw, channels, multiplier]
    y: str = "uint8"
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    groups: int = 1
    depthwise: bool = False
    stages: list[Stage] = field(default_factory=list)

    @property
    def outputs(self) -> int:
        return int(np.prod(self.w.shape[2:])) if self.depthwise else self.w.shape[3]

    def sums(self) -> np.ndarray:
        x = np.pad(self.x.astype(np.int64), ((0, 0), *self.pads, (0, 0)))
        groups = self.x.shape[3] if self.depthwise else self.groups
        w = self.w.astype(np.int64).reshape(*self.w.shape[:2], -1, self.outputs)
        windows = np.lib.stride_tricks.sliding_window_view(
            x, [(k - 1) * d + 1 for k, d in zip(w.shape, self.dilations, strict=False)], axis=(1, 2)
        )[:, :: self.strides[0], :: self.strides[1], :, :: self.dilations[0], :: self.dilations[1]]
        parts = zip(np.split(windows, groups, 3), np.split(w, groups, 3), strict=True)
        return np.concatenate([np.einsum("nhwcij,ijco->nhwo", a, b) for a, b in parts], 3)

    def numpy(self) -> np.ndarray:
        v = self.sums()
        for stage in self.stages:
            v = stage.numpy(v)
            assert v.min() >= S32.min and v.max() <= S32.max, "the test's own stages overflow"
        limits = np.iinfo(self.y)
        return np.clip(v, limits.min, limits.max).astype(self.y)

    def native(self, level: int, bound: int = 0, cuts: tuple[int, ...] = ()) -> np.ndarray:
        n, height, width, channels = self.x.shape
        y = np.empty(self.sums().shape, self.y)
        fields = (
            *(CODES.index(str(t)) for t in (self.x.dtype, self.w.dtype, self.y)),
            *(height, width, channels, *self.w.shape[:2], *self.strides, *self.dilations),
            *(self.pads[0][0], self.pads[1][0], *y.shape[1:], self.groups),
            *(int(self.depthwise), bound),
        )
        pixels = n * y.shape[1] * y.shape[2]
        ends = sorted({0, pixels, *(cut % (pixels + 1) for cut in cuts)})
        parts = [(a, b, 0, 1 << 30) for a, b in itertools.pairwise(ends)]
        stages = [stage.native() for stage in self.stages]
        kernels.conv(level, fields, self.x, self.w, stages, parts, y)
        return y


def assert_same(conv: Conv, level: int, **options) -> None:
    np.testing.assert_array_equal(conv.native(level, **options), conv.numpy())


def codes(rng, dtype, shape, share: float = 0.3):
    """Codes with extreme ones among them."""
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, shape, endpoint=True)
    extremes = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < share, extremes, values).astype(dtype)


@st.composite
def stage_lists(draw, channels: int, bound: int):
    """Stages whose values stay within 32 bits."""
    made: list[Stage] = []

    def numbers(low: int, high: int):
        each = st.integers(low, high)
        if draw(st.booleans()):
            return draw(each)
        return np.array(draw(st.lists(each, min_size=channels, max_size=channels)))

    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(KINDS))
        stage = Stage(kind, draw(st.sampled_from(ROUNDINGS)))
        if kind == "add":
            magnitude = min(S32.max - bound, 1 << draw(st.integers(0, 20)))
            stage.term = numbers(-magnitude, magnitude)
            bound += magnitude
        else:
            if kind == "requantize":
                stage.shift = numbers(-34, 34) if draw(st.booleans()) else numbers(0, 12)
            limit = draw(st.sampled_from([127, 255, 32767, 40000, 1 << 24]))
            stage.low, stage.high = numbers(-limit, 0), numbers(0, limit)
            bound = limit
        made.append(stage)
    return made


@st.composite
def convs(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sides = st.integers(1, 9)
    n, height, width = draw(st.integers(1, 2)), draw(sides), draw(sides)
    depthwise = draw(st.booleans())
    groups = 1 if depthwise else draw(st.sampled_from([1, 1, 2, 3]))
    channels = groups * draw(st.integers(1, 9) | st.sampled_from([16, 31, 32, 64, 67]))
    outputs = draw(st.integers(1, 2)) if depthwise else groups * draw(st.integers(1, 80))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    pads = draw(st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * 2))
    padded = height + sum(pads[0]), width + sum(pads[1])
    most = [min(4, (p - 1) // d + 1) for p, d in zip(padded, dilations, strict=True)]
    kernel = tuple(draw(st.integers(1, m)) for m in most)
    x = codes(rng, draw(st.sampled_from(CODES[:4])), (n, height, width, channels))
    w_type = draw(st.sampled_from(["int8", "int8", "int16"]))
    w = codes(rng, w_type, (*kernel, channels // groups, outputs), draw(st.sampled_from([0.3, 1])))
    # Of trained layers most weights are small: words hold sums of their products, or nearly so.
    small = rng.random(w.shape) < draw(st.sampled_from([0, 0.99, 1]))
    w = np.where(small, w // np.array(draw(st.sampled_from([2, 3, 8, 40])), w.dtype), w)
    if x.itemsize * w.itemsize > 1:
        w //= np.array(512 if w_type == "int16" else 8, w.dtype)
    conv = Conv(
        x,
        w,
        draw(st.sampled_from(CODES)),
        draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        dilations,
        pads,
        groups,
        depthwise,
    )
    bound = int(np.abs(conv.sums()).max())
    conv.stages = draw(stage_lists(conv.outputs, bound))
    return conv


@settings(max_examples=150)
@given(convs(), st.lists(st.integers(0, 1000), max_size=2), st.booleans())
def test_conv(level, conv, cuts, bounded):
    bound = int(np.abs(conv.sums()).max()) if bounded else 0
    assert_same(conv, level, cuts=tuple(cuts), bound=bound)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("shift", [*range(-32, 0, 5), *range(36)])
def test_every_shift(level, rounding, shift):
    """Sums at both ends of 32 bits, about zero, and at ties."""
    ties = [k << max(shift - 1, 0) for k in range(-5, 6)]
    near = [v + d for v in (*ties, 0) for d in (-1, 0, 1)]
    ends = [S32.min, S32.min + 1, S32.max, S32.max - 1]
    v = np.array([v for v in (*near, *ends) if S32.min <= v <= S32.max])
    for low, high in [(-128, 127), (-(1 << 20), 1 << 20), (S32.min, S32.max)]:
        stage = Stage("requantize", rounding, shift, 0, low, high)
        y = np.empty(v.shape, np.int32)
        given = v.astype(np.int32)
        kernels.map(level, (4, 4, 4, 1), given, given, False, [stage.native()], y)
        np.testing.assert_array_equal(y, stage.numpy(v))


@pytest.mark.parametrize("x_type", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [3, 512])
@pytest.mark.parametrize("depthwise", [False, True])
def test_largest_sums(level, x_type, channels, depthwise):
    """No instruction saturates an intermediate sum."""
    limits = np.iinfo(x_type)
    for code in (limits.min, limits.max):
        for weight in (-128, 127):
            shape = (5, 5, channels, 1) if depthwise else (5, 5, channels, 33)
            conv = Conv(
                np.full((1, 6, 6, channels), code, x_type),
                np.full(shape, weight, np.int8),
                "int32",
                depthwise=depthwise,
            )
            assert_same(conv, level)


def graffitist(rng, channels: int, shift: int, last: int, rounding: str) -> list[Stage]:
    return [
        Stage("requantize", rounding, shift, 0, -32768, 32767),
        Stage("add", term=rng.integers(-32768, 32767, channels)),
        Stage("clip", low=0),
        Stage("requantize", rounding, last, 0, 0, 255),
    ]


@pytest.mark.parametrize("x_type", ["uint8", "int8"])
@pytest.mark.parametrize("strides", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3)])
@pytest.mark.parametrize("channels", [1, 32, 64, 130])
def test_depthwise_of_three_lines(level, x_type, strides, channels):
    """It has its own kernel, which takes two lines of the output at a time where it can."""
    rng = np.random.default_rng(channels)
    for height, width, pads in [
        (1, 1, ((1, 1), (1, 1))),
        (2, 40, ((1, 1), (0, 1))),
        (7, 7, ((1, 1), (1, 1))),
        (8, 5, ((0, 0), (0, 0))),
        (3, 3, ((2, 3), (4, 2))),
    ]:
        conv = Conv(
            codes(rng, x_type, (2, height, width, channels)),
            codes(rng, "int8", (3, 3, channels, 1)),
            "int8",
            strides,
            pads=pads,
            depthwise=True,
            stages=[Stage("requantize", "half_even", 9, 0, -128, 127)],
        )
        for cuts in [(), (5, 20), (7,), (14, 40)]:
            assert_same(conv, level, cuts=cuts)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("last", [0, 1, 6, 7, 8, 9, 14, 15])
def test_saturation_between_two_roundings(level, rounding, last):
    """The second rounding is tested where 16 bits are enough, and where they are not."""
    rng = np.random.default_rng(last)
    for shift in (-20, -2, 0, 1, 4):
        conv = Conv(
            codes(rng, "uint8", (1, 30, 10, 16)),
            codes(rng, "int8", (1, 1, 16, 70)),
            stages=graffitist(rng, 70, shift, last, rounding),
        )
        assert_same(conv, level)
        assert_same(Conv(**{**vars(conv), "y": "int8"}), level)


@settings(max_examples=60)
@given(st.data())
def test_map(level, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows, channels = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 140))
    a_type, b_type, y_type = (data.draw(st.sampled_from(CODES)) for _ in range(3))
    a, b = codes(rng, a_type, (rows, channels)), codes(rng, b_type, (rows, channels))
    if "int32" in (a_type, b_type):
        a, b = a // a.dtype.type(4), b // b.dtype.type(4)
    two = data.draw(st.booleans())
    v = a.astype(np.int64) + (b if two else 0)
    stages = data.draw(stage_lists(channels, int(np.abs(v).max())))
    y = np.empty(a.shape, y_type)
    types = (CODES.index(a_type), CODES.index(b_type), CODES.index(y_type), channels)
    kernels.map(level, types, a, b, two, [stage.native() for stage in stages], y)
    for stage in stages:
        v = stage.numpy(v)
    limits = np.iinfo(y_type)
    np.testing.assert_array_equal(y, np.clip(v, limits.min, limits.max))
