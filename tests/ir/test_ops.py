"""Op references against their definitions, type rules and integer rules against both."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import GraphError
from qgraph.ir.ops import OPS, op_definition
from qgraph.ir.ops.activation import six_code
from qgraph.ir.ops.arithmetic import COMPARISONS
from qgraph.ir.ops.attributes import MarkedAttrs
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.pool import PoolAttrs
from qgraph.ir.ops.windows import PaddingRule
from qgraph.ir.types import Fixed, QuantSpec, TensorType
from qgraph.numerics import dequantize
from qgraph.ops.attributes import Attributes, attributes_of

IMAGE = (2, 6, 8, 4)
WINDOW = {"strides": (1, 2), "dilations": (2, 1), "padding": "same"}
SPEC = QuantSpec(5, True, "activation", 1)

# For every op with an integer form: attributes, input shapes.
INTEGER = {
    "quantize": ({"spec": SPEC}, [IMAGE]),
    "lookup": (
        {"spec": SPEC, "domain": QuantSpec(8, True, "activation"), "function": "tanh"},
        [IMAGE],
    ),
    "standardize": (
        {"spec": SPEC, "domain": QuantSpec(8, True, "activation"), "epsilon": 1e-3},
        [IMAGE],
    ),
    "integer_softmax": ({"spec": SPEC, "domain": QuantSpec(8, True, "activation")}, [IMAGE]),
    "conv2d": (WINDOW, [IMAGE, (3, 3, 2, 6)]),
    "depthwise_conv2d": (WINDOW, [IMAGE, (3, 3, 4, 2)]),
    "matmul": ({}, [(3, 5), (5, 2)]),
    "batch_matmul": ({}, [(2, 1, 3, 5), (4, 5, 2)]),
    "bias_add": ({}, [IMAGE, (4,)]),
    "relu": ({}, [IMAGE]),
    "relu6": ({}, [IMAGE]),
    "abs": ({}, [IMAGE]),
    **{op: ({}, [IMAGE, (8, 1)]) for op in ("add", "sub", "maximum", "minimum", "mul")},
    "max_pool": ({"ksize": (3, 2), "strides": (2, 1), "padding": ((1, 2), (0, 1))}, [IMAGE]),
    "reduce_max": ({"axes": (1, -2), "keepdims": False}, [IMAGE]),
    "identity": ({}, [IMAGE]),
    "concat": ({"axis": -1}, [IMAGE, (2, 6, 8, 1), IMAGE]),
    "pad": ({"paddings": ((0, 0), (1, 2), (0, 1), (0, 0)), "mode": "reflect"}, [IMAGE]),
    "reshape": ({"shape": (2, -1, 12)}, [IMAGE]),
    "transpose": ({"perm": (0, 3, 1, 2)}, [IMAGE]),
    "slice": (
        {"begin": (None, 1, -1, 0), "end": (2, -1, None, 4), "strides": (1, 2, -2, 3)},
        [IMAGE],
    ),
    "squeeze": ({"axes": (1, -1)}, [(2, 1, 3, 1)]),
    "expand_dims": ({"axis": -2}, [IMAGE]),
    "take": ({"axis": 2, "indices": (2, 0, 0, 5)}, [IMAGE]),
    "resize_nearest": ({"size": (9, 5), "half_pixel": True}, [IMAGE]),
    "embedding": ({}, [(3, 5), (2, 6)]),
    "space_to_depth": ({"block": 2}, [IMAGE]),
    "depth_to_space": ({"block": 2}, [IMAGE]),
    "space_to_batch": ({"block": (2, 3), "paddings": ((1, 1), (0, 1))}, [IMAGE]),
    "batch_to_space": ({"block": (2, 1), "crops": ((1, 0), (0, 2))}, [IMAGE]),
}
FLOAT = {
    "avg_pool": ({"ksize": (3, 3), "strides": (2, 1), "padding": "same"}, [IMAGE]),
    "mean": ({"axes": (1, 2), "keepdims": True}, [IMAGE]),
    "sum": ({"axes": (-1,), "keepdims": False}, [IMAGE]),
    "argmax": ({"axis": -1, "dtype": "int64"}, [IMAGE]),
    "batch_norm": ({"epsilon": 1e-3}, [IMAGE, (4,), (4,), (4,), (4,)]),
    "softmax": ({"axis": -1}, [IMAGE]),
    "leaky_relu": ({"alpha": 0.1}, [IMAGE]),
    "cast": ({"dtype": "float32"}, [IMAGE]),
    **{op: ({}, [IMAGE, (4,)]) for op in COMPARISONS},
    "squared_difference": ({}, [IMAGE, (4,)]),
}


def typed(op: str, attrs: dict) -> Attributes:
    return attributes_of(OPS[op].attributes, attrs)


def codes(seed: int, shape: tuple) -> np.ndarray:
    return np.random.default_rng(seed).integers(-20, 21, shape)


def test_every_op_with_an_integer_form_is_here():
    missing = [f"{name}: no definition in qgraph/ir/ops" for name in INTEGER if name not in OPS]
    on_codes = {name for name, op in OPS.items() if op.integer is not None}
    missing += [f"{name}: no example in {__file__}" for name in on_codes if name not in INTEGER]
    assert not missing
    assert set(INTEGER) == on_codes


@pytest.mark.parametrize("name", INTEGER)
def test_integer_rule_is_float_rule(name):
    attrs, shapes = INTEGER[name]
    fixed = [Fixed(codes(i, shape), 3) for i, shape in enumerate(shapes)]
    if name == "embedding":
        fixed[1] = Fixed(np.abs(fixed[1].codes) % 3, 0)  # indices of three rows
    found = dequantize(OPS[name].integer(typed(name, attrs), fixed))
    wanted = OPS[name].evaluate(typed(name, attrs), [dequantize(f) for f in fixed])
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("name", ["conv2d", "depthwise_conv2d", "matmul", "mul"])
def test_products_of_per_channel_scales(name):
    attrs, (a, b) = INTEGER[name]
    channels = {"depthwise_conv2d": 8, "conv2d": 6, "matmul": 2, "mul": 1}[name]
    scales = np.arange(channels) + 2
    fixed = [Fixed(codes(0, a), 3), Fixed(codes(1, b), scales)]
    found = dequantize(OPS[name].integer(typed(name, attrs), fixed))
    assert np.array_equal(
        found, OPS[name].evaluate(typed(name, attrs), [dequantize(f) for f in fixed])
    )


@pytest.mark.parametrize("name", [name for name in INTEGER if op_definition(name).same_scale])
def test_different_scales_are_refused(name):
    attrs, shapes = INTEGER[name]
    fixed = [Fixed(codes(i, shape), 3 + i) for i, shape in enumerate(shapes)]
    with pytest.raises(GraphError, match="different scales"):
        OPS[name].integer(typed(name, attrs), fixed)


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("name", [*INTEGER, *FLOAT])
def test_the_type_rule_gives_the_type_of_the_result(name, batch):
    attrs, shapes = {**INTEGER, **FLOAT}[name]
    arrays = [abs(codes(i, shape)) / 8 for i, shape in enumerate(shapes)]
    types = [TensorType("float64", shape) for shape in shapes]
    if not batch:
        types = [t.with_shape((None, *t.shape[1:])) if t.rank == 4 and t.shape[0] == 2 else t
                 for t in types]  # fmt: skip
    (inferred,) = OPS[name].types(typed(name, attrs), types)
    result = OPS[name].evaluate(typed(name, attrs), arrays)
    assert inferred.accepts(TensorType(result.dtype.name, result.shape))
    assert not batch or None not in inferred.shape


# -- convolutions by definition -------------------------------------------------------------


def by_definition(x, w, strides, dilations, pads, depthwise):
    """Every output is the sum over its window, written out."""
    x = np.pad(x, ((0, 0), *pads, (0, 0)))
    kh, kw = w.shape[:2]
    rows = (x.shape[1] - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    cols = (x.shape[2] - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    channels = w.shape[2] * w.shape[3] if depthwise else w.shape[3]
    per_group = 1 if depthwise else w.shape[2]
    out_per_group = channels // (x.shape[3] // per_group)
    y = np.zeros((len(x), rows, cols, channels), x.dtype)
    spots = itertools.product(range(rows), range(cols), range(kh), range(kw), range(channels))
    for r, c, i, j, o in spots:
        start = o // out_per_group * per_group
        seen = x[:, r * strides[0] + i * dilations[0], c * strides[1] + j * dilations[1]]
        taps = w[i, j].reshape(1, -1) if depthwise else w[i, j]
        y[:, r, c, o] += seen[:, start : start + per_group] @ taps[:, o]
    return y


TWO = st.tuples(st.integers(1, 3), st.integers(1, 3))
PADS = st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * 2)


@settings(max_examples=60)
@given(
    st.integers(0, 99), TWO, TWO, TWO, st.sampled_from(PaddingRule) | PADS,
    st.sampled_from([1, 2, 3]), st.integers(1, 2), st.booleans(), st.booleans(),
)  # fmt: skip
def test_convolution(seed, kernel, strides, dilations, padding, groups, width, depthwise, single):
    rng = np.random.default_rng(seed)
    channels = groups * width
    x = rng.integers(-9, 10, (2, 7, 8, channels)).astype(np.float32 if single else np.int64)
    shape = (channels, 2) if depthwise and width == 2 else (channels, 1)
    shape = shape if depthwise else (width, groups * 2)
    w = rng.integers(-9, 10, (*kernel, *shape)).astype(x.dtype)
    pads = padding
    if padding == "valid":
        pads = ((0, 0), (0, 0))
    if padding == "same":  # TensorFlow's definition: as many as needed, the odd one after
        needed = [
            max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            for n, s, k, d in zip((7, 8), strides, kernel, dilations, strict=True)
        ]
        pads = tuple((n // 2, n - n // 2) for n in needed)
    op = OPS["depthwise_conv2d" if depthwise else "conv2d"]
    attrs = ConvAttrs(strides=strides, dilations=dilations, padding=padding)
    wanted = by_definition(x, w, strides, dilations, pads, depthwise)
    assert np.array_equal(op.evaluate(attrs, [x, w]), wanted)
    (inferred,) = op.types(attrs, [TensorType("float32", a.shape) for a in (x, w)])
    assert inferred.shape == wanted.shape


@pytest.mark.parametrize("padding", [*PaddingRule, ((1, 0), (2, 1))])
def test_average_pool_counts_real_positions_only(padding):
    attrs = PoolAttrs(ksize=(3, 3), strides=(2, 2), padding=padding)
    x = np.random.default_rng(0).normal(size=(1, 6, 7, 2))
    window = ConvAttrs(strides=(2, 2), dilations=(1, 1), padding=padding)
    ones = np.ones((3, 3, 2, 1))
    total = OPS["depthwise_conv2d"].evaluate(window, [x, ones])
    count = OPS["depthwise_conv2d"].evaluate(window, [np.ones_like(x), ones])
    np.testing.assert_allclose(OPS["avg_pool"].evaluate(attrs, [x]), total / count, rtol=1e-12)


def test_six_is_the_nearest_code():
    assert [int(six_code(e)) for e in (-4, -3, -2, -1, 0, 3)] == [0, 1, 2, 3, 6, 48]
    fine = Fixed(np.array([5, 1 << 60, -1]), 200)  # 6 is beyond every code here
    assert OPS["relu6"].integer(MarkedAttrs(), [fine]).codes.tolist() == [5, 1 << 60, 0]


# -- what does not fit ------------------------------------------------------------------------

F = TensorType("float32", IMAGE)


@pytest.mark.parametrize(
    ("op", "attrs", "types", "complaint"),
    [
        ("conv2d", WINDOW, [F, TensorType("float32", (3, 3, 3, 4))], "4 channels do not fit"),
        ("conv2d", WINDOW, [F, TensorType("float64", (3, 3, 4, 4))], "weights are float64"),
        ("conv2d", {**WINDOW, "padding": "valid"}, [F, TensorType("float32", (9, 3, 4, 4))],
         "a window of 17 does not fit"),
        ("depthwise_conv2d", WINDOW, [F, TensorType("float32", (3, 3, 3, 1))], "4 channels"),
        ("matmul", {}, [F, F], "rank 2"),
        ("bias_add", {}, [F, TensorType("float32", (3,))], "does not fit"),
        ("add", {}, [F, TensorType("float32", (3,))], "do not broadcast"),
        ("add", {}, [F, TensorType("float64", IMAGE)], "different dtypes"),
        ("concat", {"axis": 3}, [F, TensorType("float32", (2, 5, 8, 4))], "cannot be joined"),
        ("concat", {"axis": 3}, [F, TensorType("float32", (2, 6, 8))], "cannot be joined"),
        ("reshape", {"shape": (-1, 5)}, [F], "cannot be reshaped"),
        ("transpose", {"perm": (0, 1, 1, 2)}, [F], "not a permutation"),
        ("squeeze", {"axes": (1,)}, [F], "not all 1"),
        ("pad", {"paddings": ((1, 1),)}, [F], "do not fit"),
        ("slice", {"begin": (0,), "end": (1,), "strides": (1,)}, [F], "does not fit"),
        ("space_to_depth", {"block": 4}, [F], "6 in .* does not divide into 4"),
        ("depth_to_space", {"block": 3}, [F], "4 in .* does not divide into 9"),
        ("space_to_batch", {"block": (4, 1), "paddings": ((0, 0), (0, 0))}, [F], "does not divide"),
        ("batch_to_space", {"block": (3, 1), "crops": ((0, 0), (0, 0))}, [F], "does not divide"),
        ("max_pool", {"ksize": (2, 2), "strides": (1, 1), "padding": ((0, 2), (0, 0))}, [F],
         "is not smaller than the window"),
        ("batch_norm", {"epsilon": 0}, [F, *[TensorType("float32", (3,))] * 4], "do not fit"),
        ("quantize", {"spec": SPEC}, [TensorType("int32", (1,))], "only float tensors"),
        ("lookup", {"spec": SPEC, "domain": SPEC, "function": "exp"}, [F],
         "attribute `function` is 'exp'"),
    ],
)  # fmt: skip
def test_types_that_do_not_fit(op, attrs, types, complaint):
    with pytest.raises(GraphError, match=complaint):
        OPS[op].types(typed(op, attrs), types)
