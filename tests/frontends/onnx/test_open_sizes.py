"""Expand, Tile, ConstantOfShape and Resize to sizes that are open when the model is read."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.helpers.onnx_graphs import assert_like_runtime, f, imported, ints, model_of

node = helper.make_node
BATCH = [
    node("Shape", ["x"], ["s"]),
    node("Gather", ["s", "zero"], ["n"], axis=0),
    node("Unsqueeze", ["n", "zeros"], ["batch"]),
]
TOKEN = f(1, 1, 4)
ONES = numpy_helper.from_array(np.int64([1]))
JOINED = node("Concat", ["e", "x"], ["y"], axis=1)


def sizes(*names):
    return node("Concat", list(names), ["sizes"], axis=0)


ROWS = {
    "rows": [sizes("batch", "three", "four"), node("Expand", ["p", "sizes"], ["y"])],
    "one_row": [node("Expand", ["x", "ones"], ["y"])],
    "in_front": [sizes("three", "batch", "four"), node("Expand", ["flat", "sizes"], ["y"])],
    "token": [sizes("batch", "one", "four"), node("Expand", ["token", "sizes"], ["e"]), JOINED],
    "token_tiled": [sizes("batch", "one", "one"), node("Tile", ["token", "sizes"], ["e"]), JOINED],
    "token_of_pytorch": [  # expand(n, -1, -1)
        sizes("batch", "minus", "minus"),
        node("ConstantOfShape", ["rank"], ["all"], value=ONES),
        node("Equal", ["sizes", "minus"], ["kept"]),
        node("Where", ["kept", "all", "sizes"], ["target"]),
        node("Expand", ["token", "target"], ["e"]),
        JOINED,
    ],
    "token_of_one_number": [
        sizes("batch", "one", "four"), node("Expand", ["number", "sizes"], ["e"]), JOINED,
    ],
    "zeros": [
        sizes("batch", "three", "four"),
        node("ConstantOfShape", ["sizes"], ["o"]),
        node("Add", ["o", "x"], ["y"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", ROWS)
def test_tensor_is_repeated_for_an_open_batch(case, batch):
    before = [
        node("ReduceMax", ["x"], ["p"], axes=[1]),
        node("ReduceMax", ["x"], ["flat"], axes=[1], keepdims=0),
    ]
    numbers = {"zeros": ints(0), "one": ints(1), "three": ints(3), "four": ints(4)}
    constants = {
        **numbers, "zero": np.int64(0), "minus": ints(-1), "ones": ints(1, 1, 1), "rank": ints(3),
        "token": TOKEN, "number": np.float32(0.5),
    }  # fmt: skip
    model = model_of([*BATCH, *before, *ROWS[case]], {"x": ("N", 3, 4)}, constants=constants)
    assert_like_runtime(model, {"x": f(batch, 3, 4)})


JOINED_AND_SPLIT = [  # a dense layer on rows, and a slice that keeps all of them
    node("Reshape", ["x", "rows"], ["r"]), node("MatMul", ["r", "w"], ["m"]),
    node("Reshape", ["m", "split"], ["b"]),
    node("Slice", ["b", "begin", "end", "axis"], ["d"]),
    node("ReduceSum", ["d", "one"], ["t"], keepdims=0), node("Shape", ["x"], ["s"]),
    node("Slice", ["s", "begin", "one", "axis"], ["n"]),
    node("Concat", ["n", "one", "eight"], ["size"], axis=0), node("Reshape", ["t", "size"], ["u"]),
    node("Expand", ["u", "size"], ["e"]), node("Sub", ["d", "e"], ["y"]),
]  # fmt: skip


def test_expand_to_the_own_shape_is_seen_through_joined_axes():
    """As JAX exports layer norms: magika 1.0.3."""
    constants = {
        "rows": ints(-1, 4), "split": ints(-1, 1024, 8), "w": f(4, 8), "one": ints(1),
        "eight": ints(8), "begin": ints(0), "end": ints(10**9), "axis": ints(0),
    }  # fmt: skip
    model = model_of(JOINED_AND_SPLIT, {"x": ("N", 1024, 4)}, constants=constants)
    assert_like_runtime(model, {"x": f(2, 1024, 4)})
    graph = imported(model)
    assert not [n for n in graph.nodes.values() if n.op in ("opaque", "select")]
    assert graph.types["y"].shape == (None, 1024, 8)


def test_a_size_that_may_be_reached_is_an_end():
    nodes = [node("Slice", ["x", "begin", "end"], ["y"])]
    constants = {"begin": ints(0), "end": ints(10**9)}
    model = imported(model_of(nodes, {"x": ("N",)}, constants=constants))
    assert [n.attrs["end"] for n in model.nodes.values() if n.op == "slice"] == [(10**9,)]


def test_rows_of_another_number_are_not_the_batch():
    """Half as many rows as the batch: the Expand repeats, or is refused, but is not dropped."""
    nodes = [
        node("Reshape", ["x", "pairs"], ["p"]), node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "begin", "one", "axis"], ["n"]),
        node("Concat", ["n", "eight"], ["size"], axis=0), node("Expand", ["p", "size"], ["y"]),
    ]  # fmt: skip
    constants = {"pairs": ints(-1, 8), "eight": ints(8), "begin": ints(0), "one": ints(1),
                 "axis": ints(0)}  # fmt: skip
    graph = imported(model_of(nodes, {"x": ("N", 4)}, constants=constants))
    assert [n.op for n in graph.nodes.values() if n.op == "opaque"]


def test_image_is_spread_over_open_height_and_width():
    nodes = [
        node("Conv", ["x", "w"], ["c"]), node("Shape", ["c"], ["cs"]),
        node("GlobalAveragePool", ["c"], ["g"]), node("Expand", ["g", "cs"], ["y"]),
    ]  # fmt: skip
    model = model_of(nodes, {"x": ("N", 3, "h", "w_")}, constants={"w": f(4, 3, 3, 3)})
    assert_like_runtime(model, {"x": f(2, 3, 6, 5)})


@pytest.mark.parametrize("batch", ["N", 2])
@pytest.mark.parametrize("opset", [11, 13])
def test_resize_to_the_size_of_another_tensor(batch, opset):
    nodes = [
        node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "two", "four"], ["hw"]),
        node("Shape", ["c"], ["sc"]),
        node("Slice", ["sc", "zero", "two"], ["nc"]),
        node("Concat", ["nc", "hw"], ["size"], axis=0),
        node("Resize", ["c", "roi", "roi", "size"], ["y"], nearest_mode="floor",
             coordinate_transformation_mode="asymmetric", cubic_coeff_a=-0.5),
    ]  # fmt: skip
    constants = {
        "w": f(4, 3, 3, 3), "zero": ints(0), "two": ints(2), "four": ints(4),
        "roi": np.float32([]),
    }  # fmt: skip
    model = model_of(nodes, {"x": (batch, 3, 8, 6)}, constants=constants, opset=opset)
    assert_like_runtime(model, {"x": f(2, 3, 8, 6)})
