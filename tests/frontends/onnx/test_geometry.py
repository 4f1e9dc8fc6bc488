"""Windows of any geometry against ONNX Runtime; shapes that are known only in part."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

from qgraph.interpret import evaluate
from tests.frontends.onnx import test_elementwise, test_layers, test_moves
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import (
    assert_like_runtime,
    f,
    feed_of,
    imported,
    info,
    ints,
    model_of,
    one_op,
    runtime,
)

MANY = settings(max_examples=60)
SMALL, STEP = st.integers(1, 4), st.integers(1, 3)
make = helper.make_node


@st.composite
def geometries(draw, rank=None, padded=True):
    """Attributes of a window over one or two axes."""
    axes = rank or draw(st.integers(1, 2))
    several = lambda values: draw(st.lists(values, min_size=axes, max_size=axes))  # noqa: E731
    made = {"kernel_shape": several(SMALL), "strides": several(STEP)}
    kind = draw(st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if kind != "NOTSET":
        made["auto_pad"] = kind
    elif padded:
        reach = [draw(st.integers(0, k - 1)) for k in (*made["kernel_shape"],) * 2]
        made["pads"] = reach
    return axes, made


def image(axes, channels, low=5):
    return f(2, channels, *(low + 3 * k for k in range(axes)))


def fits(model, x):
    """Whether a window fits and ONNX Runtime supports it; other cases prove nothing."""
    try:
        runtime(model, {"x": x})
    except Exception:
        assume(False)


def spans(attrs):
    """The sizes of a window from its first to its last element."""
    kernel = attrs["kernel_shape"]
    dilations = attrs.get("dilations", [1] * len(kernel))
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def padded_sizes(x, attrs):
    """The sizes of an image with its padding; those of automatic padding always suffice."""
    axes = len(attrs["kernel_shape"])
    if attrs.get("auto_pad", "").startswith("SAME"):
        return spans(attrs)
    pads = attrs.get("pads", [0] * 2 * axes)
    return [n + pads[i] + pads[axes + i] for i, n in enumerate(x.shape[2:])]


@MANY
@given(geometries(), st.data())
def test_convolution(geometry, data):
    axes, attrs = geometry
    groups, share, out = data.draw(st.sampled_from([(1, 3, 2), (2, 2, 3), (4, 1, 1), (3, 1, 2)]))
    if "auto_pad" not in attrs:
        attrs["dilations"] = [data.draw(st.integers(1, 2)) for _ in range(axes)]
    x = image(axes, groups * share, 8)
    w, b = f(groups * out, share, *attrs.pop("kernel_shape")), f(groups * out)
    model = one_op("Conv", x, w, b, group=groups, **attrs)
    fits(model, x)
    assert_like_runtime(model, {"x": x})


@MANY
@given(geometries(), st.data())
def test_transposed_convolution(geometry, data):
    axes, attrs = geometry
    groups, share, out = data.draw(st.sampled_from([(1, 3, 2), (2, 2, 1), (3, 1, 1)]))
    strides = attrs["strides"]
    if data.draw(st.booleans()):
        attrs["output_padding"] = [data.draw(st.integers(0, s - 1)) for s in strides]
    if "auto_pad" not in attrs:
        attrs["dilations"] = [data.draw(st.integers(1, 2)) for _ in range(axes)]
    x = image(axes, groups * share)
    w, b = f(groups * share, out, *attrs.pop("kernel_shape")), f(groups * out)
    model = one_op("ConvTranspose", x, w, b, group=groups, **attrs)
    fits(model, x)
    assert_like_runtime(model, {"x": x}, opaque=None)


@MANY
@given(
    geometries(), st.booleans(), st.sampled_from(["MaxPool", "AveragePool", "counted"]), st.data()
)
def test_pool(geometry, ceiling, op, data):
    axes, attrs = geometry
    if "auto_pad" not in attrs and data.draw(st.booleans()):
        attrs["dilations"] = [data.draw(st.integers(1, 3)) for _ in range(axes)]
    if attrs.get("auto_pad", "").startswith("SAME"):  # else ONNX Runtime cuts off the front
        assume(all(k >= s for k, s in zip(attrs["kernel_shape"], attrs["strides"], strict=True)))
        ceiling = False
    if op == "counted":
        attrs["count_include_pad"] = 1
    x = image(axes, 3, 6)
    # ONNX Runtime rounds towards 0 and finds a window where none fits, which ONNX does not.
    assume(all(n >= span for n, span in zip(padded_sizes(x, attrs), spans(attrs), strict=True)))
    kind = "MaxPool" if op == "MaxPool" else "AveragePool"
    model = one_op(kind, x, opset=19, ceil_mode=int(ceiling), **attrs)
    fits(model, x)
    assert_like_runtime(model, {"x": x}, opaque=None)


@MANY
@given(
    st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]),
    st.sampled_from(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_nearest_resize_reads_the_same_elements(where, rounding, size):
    x = f(1, 2, 4, 3)
    attrs = {"coordinate_transformation_mode": where, "nearest_mode": rounding}
    model = one_op("Resize", x, None, None, ints(1, 2, *size), opset=13, **attrs)
    fits(model, x)
    assert_like_runtime(model, {"x": x}, opaque=None)


COORDINATES = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]


@MANY
@given(
    st.sampled_from(COORDINATES),
    st.sampled_from(["linear", "cubic"]),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
)
def test_interpolation_is_that_of_onnx_runtime(where, mode, have, size):
    x = f(2, 3, *have)
    attrs = {"coordinate_transformation_mode": where, "mode": mode}
    model = one_op("Resize", x, None, None, ints(2, 3, *size), opset=13, **attrs)
    fits(model, x)
    assert_like_runtime(model, {"x": x})


# -- dimensions that are open -------------------------------------------------------------------


def flattened_by_arithmetic():
    """The nodes that exporters write for x.view(x.size(0), -1)."""
    nodes = [
        make("Shape", ["x"], ["s"]),
        make("Gather", ["s", "zero"], ["n"]),
        make("Unsqueeze", ["n", "axes"], ["n1"]),
        make("Concat", ["n1", "rest"], ["target"], axis=0),
        make("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "axes": ints(0), "rest": ints(-1)}
    return model_of(nodes, {"x": (None, 4, 3, 2)}, constants=constants)


def padded_by_arithmetic():
    """An amount that is computed: (8 - 5) // 2 on each side."""
    nodes = [
        make("Sub", ["eight", "five"], ["room"]),
        make("Div", ["room", "two"], ["half"]),
        make("Concat", ["none", "half", "none", "half"], ["pads"], axis=0),
        make("Pad", ["x", "pads"], ["y"]),
    ]
    constants = {"eight": ints(8), "five": ints(5), "two": ints(2), "none": ints(0)}
    return model_of(nodes, {"x": (None, 5)}, constants=constants)


def widened():
    """A row for each sample: Expand to the batch of the input."""
    nodes = [
        make("Shape", ["x"], ["s"]),
        make("ConstantOfShape", ["ones"], ["o"], value=helper.make_tensor("v", 1, [1], [2.0])),
        make("Mul", ["x", "o"], ["m"]),
        make("Expand", ["m", "s"], ["y"]),
    ]
    return model_of(nodes, {"x": (None, 5)}, constants={"ones": ints(1, 5)})


def doubled():
    """Twice the size, for any size."""
    attrs = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    nodes = [make("Resize", ["x", "", "scales"], ["y"], **attrs)]
    constants = {"scales": np.float32([1, 1, 2, 2])}
    return model_of(nodes, {"x": (None, 3, None, None)}, constants=constants, opset=13)


def upsampled():
    nodes = [make("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])]
    constants = {"w": f(3, 2, 4, 4), "b": f(2)}
    return model_of(nodes, {"x": (None, 3, None, None)}, constants=constants)


def normalized():
    """Batch norm, global pool and dense layer on an image of any size."""
    nodes = [
        make("BatchNormalization", ["x", "g", "g", "g", "v"], ["n"]),
        make("GlobalAveragePool", ["n"], ["p"]),
        make("Flatten", ["p"], ["q"]),
        make("Gemm", ["q", "w"], ["y"]),
    ]
    constants = {"g": f(3), "v": np.abs(f(3)) + 0.1, "w": f(3, 2)}
    return model_of(nodes, {"x": (None, 3, None, None)}, constants=constants)


OPEN = {
    "flattened": (flattened_by_arithmetic(), (2, 4, 3, 2), "float32[?,24]"),
    "padded": (padded_by_arithmetic(), (2, 5), "float32[?,7]"),
    "widened": (widened(), (2, 5), "float32[?,5]"),
    "doubled": (doubled(), (2, 3, 5, 4), "float32[?,3,?,?]"),
    "upsampled": (upsampled(), (2, 3, 5, 4), "float32[?,2,?,?]"),
    "normalized": (normalized(), (2, 3, 5, 4), "float32[?,2]"),
}


@pytest.mark.parametrize("case", OPEN)
def test_open_dimensions_stay_open(case):
    model, shape, kind = OPEN[case]
    graph = assert_like_runtime(model, {"x": f(*shape)})
    assert str(graph.types["y"]) == kind


CASES = {**test_elementwise.CASES, **test_layers.CASES, **test_moves.CASES}
NEEDS_ALL = {"Squeeze": ["Squeeze"], "Expand": ["Expand"]}  # what they do depends on the batch


@pytest.mark.parametrize("case", CASES)
def test_batch_may_be_open(case):
    model = type(CASES[case]).FromString(CASES[case].SerializeToString())
    batch = model.graph.input[0].type.tensor_type.shape.dim[0]
    batch.dim_param = "N"
    x = {"x": feed_of(CASES[case])}
    graph = assert_like_runtime(model, x, opaque=NEEDS_ALL.get(case, ()))
    assert graph.types["x"].shape[0] is None


def test_height_and_width_that_are_given_settle_what_was_open():
    nodes = [
        make("Shape", ["x"], ["s"]),
        make("Slice", ["s", "two", "four"], ["hw"]),
        make("Concat", ["front", "hw"], ["target"], axis=0),
        make("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"two": ints(2), "four": ints(4), "front": ints(-1, 6)}
    model = model_of(nodes, {"x": info("x", (None, 3, None, None))}, constants=constants)
    assert opaque_kinds(imported(model)) == ["Reshape", "Shape"]
    graph = imported(model, input_shapes={"x": (None, 3, 4, 5)})
    assert opaque_kinds(graph) == [] and str(graph.types["y"]) == "float32[?,6,4,5]"
    x = f(2, 3, 4, 5)
    np.testing.assert_array_equal(evaluate(graph, {"x": x})["y"], runtime(model, {"x": x})["y"])
