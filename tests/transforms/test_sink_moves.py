"""Biases, batch norms and activations of a layer are computed before moves of its result."""

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

from qgraph.errors import GraphError
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.rewrite import paths
from qgraph.transforms.sink_moves import SinkMoves
from tests.helpers.evaluate import random_feeds, reasons, run_pass
from tests.helpers.graphs import ops

RNG = np.random.default_rng(0)
CHANNELS, HEIGHT, WIDTH = 8, 4, 6
Moves = Callable[[Graph, str], str]


def step(op: str, **attrs: object) -> Moves:
    return lambda graph, value: graph.add(op, value, attrs=attrs)


def part(**axes: slice) -> Moves:
    parts = [axes.get(axis, slice(None)) for axis in ("n", "h", "w", "c")]
    begin, end = (tuple(getattr(p, key) for p in parts) for key in ("start", "stop"))
    return step("slice", begin=begin, end=end, strides=tuple(p.step or 1 for p in parts))


def path(*moves: Moves) -> Moves:
    def moved(graph: Graph, value: str) -> str:
        for move in moves:
            value = move(graph, value)
        return value

    return moved


UP = step("depth_to_space", block=2)
FIRST = part(h=slice(0, 3))
# The image is [n, 4, 6, 8]. The moves, and the channel of the layer at each channel of the result.
MOVES: dict[str, tuple[Moves, np.ndarray]] = {
    "blocks": (UP, np.arange(8).reshape(4, 2)),
    "crop": (path(UP, part(h=slice(1, -1), w=slice(1, None))), np.arange(8).reshape(4, 2)),
    "channels": (part(c=slice(2, 5)), np.array([[2, 3, 4]])),
    "reversed": (part(c=slice(None, None, -1)), np.arange(8)[None, ::-1]),
    "strided": (part(h=slice(0, 3, 2)), np.arange(8)[None]),
    "turned": (path(FIRST, step("transpose", perm=(0, 2, 1, 3))), np.arange(8)[None]),
    "taken": (step("take", indices=(6, 1, 3, 0, 2, 5), axis=3), np.array([[6, 1, 3, 0, 2, 5]])),
    "repeated": (step("resize_nearest", size=(8, 12)), np.arange(8)[None]),
    "rows": (path(FIRST, step("reshape", shape=(-1, 8))), np.arange(8)[None]),
    "groups": (path(FIRST, step("reshape", shape=(-1, 3, 6, 2, 4))), np.arange(8).reshape(2, 4)),
    "wide": (path(FIRST, step("reshape", shape=(-1, 3, 3, 16))), np.tile(np.arange(8), 2)[None]),
    "expanded": (path(FIRST, step("expand_dims", axis=1)), np.arange(8)[None]),
    "unequal strides": (
        path(
            step("reshape", shape=(-1, 6, 2, 4)),
            step("transpose", perm=(0, 2, 1, 3)),
            step("reshape", shape=(-1, 8, 6, 4)),
        ),
        np.arange(8).reshape(2, 4),
    ),
    "to channels first and back": (
        path(
            step("transpose", perm=(0, 3, 1, 2)),
            part(w=slice(1, None)),
            step("transpose", perm=(0, 2, 3, 1)),
        ),
        np.arange(8)[None],
    ),
}


def image(graph: Graph, batch: int | None = None) -> str:
    x = graph.input("x", "float32", (batch, HEIGHT, WIDTH, 3))
    weights = graph.const(RNG.normal(size=(1, 1, 3, CHANNELS)).astype(np.float32), "w")
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": "valid"}
    return graph.add("conv2d", x, weights, name="layer", attrs=attrs)


def numbers(size: int) -> np.ndarray:
    """Different numbers of a batch norm's variance, or of any other constant."""
    return RNG.permutation(np.arange(1, size + 1)).astype(np.float32)


def assert_sinks(graph: Graph, y: str, *wanted: str) -> None:
    """`wanted` ops are those right behind the layer; no bit of the function changes."""
    graph.outputs["y"] = y
    feeds = random_feeds(graph)
    before = evaluate(graph, feeds)["y"]
    run_pass(SinkMoves(), graph, tolerance=0)
    np.testing.assert_array_equal(evaluate(graph, feeds)["y"], before)
    first = ("input", "conv2d", *wanted)
    assert tuple(ops(graph)[: len(first)]) == first
    assert not {*wanted} & {*ops(graph)[len(first) :]}


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("kind", MOVES)
def test_a_bias_is_that_of_the_layers_channels(kind: str, batch: int | None) -> None:
    moves, places = MOVES[kind]
    graph, bias = Graph("net"), numbers(CHANNELS)[places[0]]
    y = graph.add("bias_add", moves(graph, image(graph, batch)), graph.const(bias, "b"), name="y")
    assert_sinks(graph, y, "bias_add")
    (made,) = (graph.constant(n.inputs[1]) for n in graph.nodes.values() if n.op == "bias_add")
    assert made is not None and made.shape == (CHANNELS,)
    np.testing.assert_array_equal(made[places], np.broadcast_to(bias, places.shape))


@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 8, 1, 1)])
def test_channels_on_another_axis(shape: tuple[int, ...]) -> None:
    graph = Graph("net")
    moved = path(FIRST, step("transpose", perm=(0, 3, 1, 2)))(graph, image(graph))
    assert_sinks(graph, graph.add("add", moved, graph.const(numbers(8).reshape(shape), "b")), "add")


def batch_norm(graph: Graph, value: str) -> str:
    size = graph.types[value].shape[-1]
    statistics = [graph.const(numbers(size), name) for name in ("gamma", "beta", "mean", "var")]
    return graph.add("batch_norm", value, *statistics, attrs={"epsilon": 1e-3})


def scale(graph: Graph, value: str) -> str:
    return graph.add("mul", graph.const(numbers(graph.types[value].shape[-1]), "s"), value)


@pytest.mark.parametrize("kind", ["blocks", "crop", "unequal strides", "groups", "taken"])
def test_all_that_belongs_to_the_layer(kind: str) -> None:
    graph = Graph("net")
    moved = MOVES[kind][0](graph, image(graph))
    y = step("relu")(graph, scale(graph, batch_norm(graph, moved)))
    assert_sinks(graph, y, "batch_norm", "mul", "relu")


def test_one_number_stays_one() -> None:
    graph = Graph("net")
    y = graph.add("mul", UP(graph, image(graph)), graph.const(np.float32(3), "three"))
    assert_sinks(graph, y, "mul")
    assert {c.shape for n in graph.nodes.values() if (c := graph.constant(n.name)) is not None} == {
        (), (1, 1, 3, CHANNELS)
    }  # fmt: skip


def padded(graph: Graph, value: str) -> str:
    return step("pad", paddings=((0, 0), (1, 1), (0, 0), (0, 0)))(graph, UP(graph, value))


def shared(graph: Graph, value: str) -> str:
    graph.outputs["too"] = value
    return UP(graph, value)


def shared_between(graph: Graph, value: str) -> str:
    up = UP(graph, value)
    graph.outputs["too"] = graph.add("relu", up)
    return part(h=slice(1, None))(graph, up)


REFUSED: dict[str, tuple[Moves, tuple[int, ...], str]] = {
    "padding": (padded, (2,), "pads a layer's result with other numbers"),
    "mixed": (part(c=slice(0, 4)), (6, 4), "`b` differs within a channel of `layer`"),
    "several numbers": (MOVES["wide"][0], (16,), "`b` differs within a channel"),
    "columns": (
        path(FIRST, step("transpose", perm=(0, 3, 1, 2))),
        (6,),
        "`b` differs within a channel",
    ),
    "shared": (shared, (2,), "`layer` has other users"),
    "shared between": (shared_between, (2,), "`depth_to_space` has other users"),
    "samples": (path(FIRST, step("transpose", perm=(1, 0, 2, 3))), (8,), "mixes samples"),
    "samples as rows": (path(FIRST, step("reshape", shape=(3, -1, 8))), (8,), "mixes samples"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals(kind: str) -> None:
    moves, shape, reason = REFUSED[kind]
    graph = Graph("net")
    bias = graph.const(RNG.normal(size=shape).astype(np.float32), "b")
    graph.outputs["y"] = graph.add("add", moves(graph, image(graph)), bias, name="y")
    before = graph.topological()
    ((node, why),) = reasons(run_pass(SinkMoves(), graph))
    assert node == "y" and reason in why and graph.topological() == before


@pytest.mark.parametrize("most", [191, 767])
def test_images_that_are_too_large(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """The layer has 4 * 6 * 8 elements, the enlarged image 4 times as many."""
    graph = Graph("net")
    large = step("resize_nearest", size=(8, 12))(graph, image(graph))
    graph.outputs["y"] = graph.add("bias_add", large, graph.const(numbers(8), "b"), name="y")
    monkeypatch.setattr(paths, "MAX_ELEMENTS", most)
    ((_, why),) = reasons(run_pass(SinkMoves(), graph))
    assert "too large" in why


def no_layer(graph: Graph, value: str) -> str:
    return UP(graph, step("max_pool", ksize=(1, 1), strides=(1, 1), padding="valid")(graph, value))


@pytest.mark.parametrize(
    "moves",
    [
        padded,
        no_layer,
        shared,
        part(c=slice(0, 4)),
        part(h=slice(0, 2)),
        step("transpose", perm=(0, 3, 1, 2)),
        step("reshape", shape=(-1, 8)),
    ],
)
def test_activations_that_stay(moves: Moves) -> None:
    graph = Graph("net")
    graph.outputs["y"] = graph.add("tanh", moves(graph, image(graph)), name="y")
    before = graph.topological()
    assert not reasons(run_pass(SinkMoves(), graph)) and graph.topological() == before


def test_weights_that_are_not_constant_are_no_layer() -> None:
    graph = Graph("net")
    a, b = (graph.input(n, "float32", (4, 4)) for n in "ab")
    moved = step("take", indices=(3, 2, 1, 0), axis=1)(graph, graph.add("matmul", a, b))
    graph.outputs["y"] = graph.add("tanh", moved)
    before = graph.topological()
    run_pass(SinkMoves(), graph)
    assert graph.topological() == before


@given(
    kinds=st.lists(st.sampled_from(sorted(MOVES)), max_size=4),
    batch=st.sampled_from([None, 1, 2]),
    op=st.sampled_from(["bias_add", "add", "sub", "mul", "maximum", "relu", "batch_norm"]),
    axes=st.lists(st.booleans(), min_size=8, max_size=8),
    seed=st.integers(0, 99),
)
def test_no_bit_changes(
    kinds: list[str], batch: int | None, op: str, axes: list[bool], seed: int
) -> None:
    """Whatever the moves are, and along which axes the constant varies."""
    graph, rng = Graph("net"), np.random.default_rng(seed)
    value = image(graph, batch)
    for kind in kinds:
        with contextlib.suppress(GraphError):  # it does not fit the shape
            value = MOVES[kind][0](graph, value)
    shape = [1 if size is None else size for size in graph.types[value].shape or ()]
    sizes = [s if chosen else 1 for s, chosen in zip(shape, axes, strict=False)]
    if op in ("bias_add", "batch_norm"):
        sizes = shape[-1:]
    constants = {"relu": 0, "batch_norm": 4}.get(op, 1)
    others = [
        graph.const(rng.uniform(0.5, 2, sizes).astype(np.float32), "c") for _ in range(constants)
    ]
    attrs = {"epsilon": 1e-3} if op == "batch_norm" else {}
    graph.outputs["y"] = graph.add(op, value, *others, attrs=attrs)
    for samples in (1, 2, 3):
        feeds, after = random_feeds(graph, seed, samples), graph.copy()
        try:
            before = evaluate(graph, feeds)["y"]
        except GraphError:  # elements of several samples would be in one row
            reject()
        run_pass(SinkMoves(), after, tolerance=0)
        event("sunk" if after.topological() != graph.topological() else "not sunk")
        np.testing.assert_array_equal(evaluate(after, feeds)["y"], before)
