"""The integer program is the integer reference, tensor by tensor."""

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from qgraph.errors import GraphError, UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.ir.types import Fixed, TensorType
from qgraph.program import lower, run
from tests.helpers.evaluate import random_feeds
from tests.helpers.layers import Net
from tests.helpers.quantized import PROFILES, quantize, random_network


def entries_of(program, graph, feeds):
    codes = Reference(graph).run(feeds, [e.tensor for e in program.entries])
    return {name: value.codes for name, value in codes.items()}


def assert_same(graph, feeds) -> int:
    """Every tensor of the program that the reference has; the number of elements compared."""
    program = lower(graph)
    names = [n for n in program.tensors if n in graph.types and n not in program.constants]
    expected = Reference(graph).run(feeds, names)
    found = run(program, entries_of(program, graph, feeds), names)
    for name in names:
        tensor = program.tensors[name]
        assert isinstance(expected[name], Fixed), name
        np.testing.assert_array_equal(found[name], expected[name].codes, name)
        assert found[name].shape[1:] == tensor.shape[1:]
        assert tensor.low <= found[name].min() and found[name].max() <= tensor.high
        assert np.array_equal(np.broadcast_to(tensor.exponent, np.shape(expected[name].exponent)),
                              expected[name].exponent)  # fmt: skip
        np.testing.assert_array_equal(found[name].astype(tensor.storage), found[name])
    return sum(found[name].size for name in names)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(sorted(PROFILES)))
def test_random_networks(seed: int, profile: str) -> None:
    graph = random_network(seed, profile)
    try:
        lower(graph)
    except UnsupportedError as error:
        assert "float" in error.message or "nothing" in error.message
        reject()
    assert assert_same(graph, random_feeds(graph, seed, batch=3))


MOVES = {
    "reshape": {"shape": (-1, 16, 12)},
    "transpose": {"perm": (0, 2, 1, 3)},
    "slice": {"begin": (0, 5, None, 0), "end": (None, None, 1, None), "strides": (1, -2, -1, 2)},
    "pad": {"paddings": ((0, 0), (1, 0), (2, 3), (0, 1))},
    "take": {"axis": 1, "indices": (3, 0, 0)},
    "resize_nearest": {"size": (5, 9), "half_pixel": True},
    "space_to_depth": {"block": 2},
    "depth_to_space": {"block": 2},
    "expand_dims": {"axis": 1},
    "reduce_max": {"axes": (-1, 1), "keepdims": True},
    "max_pool": {"ksize": (3, 2), "strides": (2, 1), "padding": "same"},
    "identity": {},
}


@pytest.mark.parametrize("op", MOVES)
def test_moves(op: str) -> None:
    net = Net(6, 4, 8)
    y = net.op(op, net.op("relu", net.op("add", "x", net.const("c", 8))), **MOVES[op])
    net.graph.outputs["y"] = y
    graph = quantize(net.graph)
    assert assert_same(graph, random_feeds(graph, batch=3))
    assert lower(graph).batch_free


@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
def test_pads_that_mirror(mode: str) -> None:
    net = Net(6, 4, 8)
    paddings = ((0, 0), (2, 1), (0, 3), (0, 0))
    y = net.op("relu", net.op("add", "x", net.const("c", 8)))
    net.graph.outputs["y"] = net.op("pad", y, paddings=paddings, mode=mode)
    graph = quantize(net.graph)
    assert assert_same(graph, random_feeds(graph, batch=3))


def test_batches_that_become_space_are_not_free() -> None:
    net = Net(4, 4, 4)
    y = net.op("space_to_batch", "x", block=(2, 2), paddings=((1, 1), (0, 2)))
    y = net.conv(y, "conv")
    net.graph.outputs["y"] = net.op("batch_to_space", y, block=(2, 2), crops=((1, 1), (0, 2)))
    graph = quantize(net.graph)
    program = lower(graph)
    assert not program.batch_free
    feeds = random_feeds(graph, batch=1)
    assert_same(graph, feeds)
    with pytest.raises(GraphError, match="expects codes"):
        run(program, {program.entries[0].tensor: np.zeros((2, 4, 4, 4), np.int64)})


@pytest.mark.parametrize("batch", [None, 1])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("slice", {"begin": (0, None), "end": (1, None), "strides": (1, 1)}),
        ("slice", {"begin": (-1, None), "end": (None, None), "strides": (1, 1)}),
        ("slice", {"begin": (0, None), "end": (9, None), "strides": (1, 1)}),
        ("reshape", {"shape": (1, -1)}),
        ("reshape", {"shape": (1, -1, 2)}),
        ("expand_dims", {"axis": 0}),
    ],
)
def test_what_one_sample_has_no_effect_on_may_mix_more(op: str, attrs, batch: int | None) -> None:
    """The first part of one sample is all of it; the first of two is not."""
    net = Net(4)
    net.graph.set_attrs("x", type=TensorType("float32", (batch, 4)))
    y = net.op(op, net.op("add", "x", net.const("c", 4)), **attrs)
    net.graph.outputs["y"] = y
    program = lower(quantize(net.graph, data={"x": np.ones((batch or 2, 4), np.float32)}))
    assert program.batch_free is (batch == 1)
    assert not program.blocks_free


@pytest.mark.parametrize(("end", "wanted"), [(None, True), (100, False)])
def test_rows_that_are_limited_are_not_those_of_each_sample(end: int | None, wanted: bool) -> None:
    """One sample has 6 rows, and two have 12; of 100 samples the slice drops some."""
    net = Net(6, 4)
    x = net.op("reshape", net.op("add", "x", net.const("c", 4)), shape=(-1, 4))
    x = net.op("slice", x, begin=(0, None), end=(end, None), strides=(1, 1))
    net.graph.outputs["y"] = net.fc(x, "layer")
    program = lower(quantize(net.graph))
    assert not program.batch_free and program.blocks_free is wanted


def test_a_float_op_between_integers_begins_a_segment() -> None:
    net = Net(4)
    y = net.fc(net.op("exp", net.fc("x", "first"), name="between"), "last")
    net.graph.outputs["y"] = y
    program = lower(quantize(net.graph))
    assert [(e.source, e.segment) for e in program.entries] == [("x", 0), ("between", 1)]


def test_an_unknown_size_is_refused() -> None:
    net = Net(None, 4, 4)
    net.graph.outputs["y"] = net.conv("x", "conv")
    graph = quantize(net.graph, data={"x": np.ones((2, 4, 4, 4), np.float32)})
    with pytest.raises(UnsupportedError, match="size is unknown"):
        lower(graph)
    assert lower(graph, {"x": (None, 4, 4, 4)}).batch_free


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (None, "codes of this input are missing"),
        (np.zeros((1, 5), np.int64), "expects codes"),
        (np.zeros((1, 4), np.float32), "integers"),
        (np.full((1, 4), 999), "codes are outside"),
    ],
)
def test_entries_are_checked(codes, message: str) -> None:
    net = Net(4)
    net.graph.outputs["y"] = net.fc("x", "layer")
    program = lower(quantize(net.graph))
    (entry,) = program.entries
    with pytest.raises(GraphError, match=message):
        run(program, {} if codes is None else {entry.tensor: codes})


def test_a_graph_without_integers_has_no_program() -> None:
    net = Net(4)
    net.graph.outputs["y"] = net.op("exp", "x")
    with pytest.raises(UnsupportedError, match="nothing is computed in integers"):
        lower(quantize(net.graph))


def test_golden() -> None:
    net = Net(4)
    net.graph.outputs["y"] = net.op("relu", net.fc("x", "layer"))
    assert str(lower(quantize(net.graph))).split("\n") == [
        "program net (any batch)",
        "  x/q8: int8[1, 4] = entry(x)",
        "  layer: int32[1, 4] = matmul(x/q8, layer/w/q8)",
        "  layer/q16: int16[1, 4] = requantize(layer) {shift=-2, rounding=half_even,"
        " overflow=saturate, low=-32768, high=32767}",
        "  relu: uint16[1, 4] = clip(layer/q16) {low=0, high=None}",
        "  relu/q8: uint8[1, 4] = requantize(relu) {shift=7, rounding=half_even,"
        " overflow=saturate, low=0, high=255}",
        "  return relu/q8",
        "",
    ]
