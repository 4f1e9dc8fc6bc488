"""High biases go from one bias to the next: exact above 3 deviations, said so below."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Moments
from qgraph.ir.verify import verify
from qgraph.passes import PassManager
from qgraph.quant.plan import Plan
from qgraph.recipes import FLOAT, prepare
from qgraph.rewrite.trace import Trace
from qgraph.transforms.absorb_biases import AbsorbBiases

RNG = np.random.default_rng(0)
WINDOW = {"strides": (1, 1), "dilations": (1, 1)}
MEAN, DEVIATION = np.array([10.0, 1, 5, -3]), np.array([2.0, 1, 0.5, 1])
SHIFT = np.array([4.0, 0, 3.5, 0])


def normals(count: int = 2, low: float = -np.inf) -> np.ndarray:
    """Unit normal inputs, none below `low`; the first layer gives them MEAN and DEVIATION."""
    return np.maximum(RNG.normal(size=(count, 6, 6, 4)), low)


def start() -> tuple[Graph, str]:
    """The input, a 1x1 layer and its bias, whose statistics are known."""
    g = Graph("net")
    x = g.input("x", "float64", (None, 6, 6, 4))
    w = g.const(np.diag(DEVIATION).reshape(1, 1, 4, 4), "w")
    y = g.add("conv2d", x, w, name="first", attrs={**WINDOW, "padding": "valid"})
    y = g.add("bias_add", y, g.const(MEAN, "b"), name="biased")
    g.moments[y] = Moments(MEAN, DEVIATION)
    g.facts.add("batch-norm-folded")
    return g, y


def conv(g: Graph, x: str, name: str = "second", padding: str = "valid", size: int = 3) -> str:
    w = g.const(RNG.normal(size=(size, size, 4, 3)), f"{name}/w")
    return g.add("conv2d", x, w, name=name, attrs={**WINDOW, "padding": padding})


def absorbed(g: Graph, y: str) -> tuple[Graph, Trace]:
    g.outputs["y"] = y
    after, trace = g.copy(), Trace()
    AbsorbBiases().run(after, trace)
    verify(after)
    return after, trace


def assert_same(before: Graph, after: Graph, x: np.ndarray) -> None:
    wanted = evaluate(before, {"x": x})["y"]
    np.testing.assert_allclose(evaluate(after, {"x": x})["y"], wanted, rtol=1e-12, atol=1e-12)


def relu(g: Graph, y: str) -> str:
    return g.add("relu", y)


def relu6(g: Graph, y: str) -> str:
    return g.add("relu6", y)


def clip(g: Graph, y: str) -> str:
    return g.add("minimum", g.add("relu", y), g.const(np.array([12.0, 2, 3, 1]), "clip"))


def scalar_clip(g: Graph, y: str) -> str:
    return g.add("minimum", g.add("relu", y), g.const(np.float64(4.5), "clip"))


@pytest.mark.parametrize("activation", [relu, relu6, clip, scalar_clip])
def test_the_function_is_kept_above_three_deviations(activation) -> None:
    g, y = start()
    after, trace = absorbed(g, conv(g, activation(g, y)))
    assert after.constant(after.nodes["biased"].inputs[1])[0] < MEAN[0]
    assert len(trace.rewrites) == 1 and not trace.refusals
    assert_same(g, after, normals(low=-3))


def test_what_goes_where() -> None:
    g, y = start()
    y = conv(g, relu(g, y))
    after, trace = absorbed(g, g.add("bias_add", y, g.const(np.ones(3), "b2"), name="out"))
    assert after.constant(after.nodes["biased"].inputs[1]).tolist() == (MEAN - SHIFT).tolist()
    moved = g.constant("second/w").sum(axis=(0, 1)).T @ SHIFT
    np.testing.assert_allclose(after.constant(after.nodes["out"].inputs[1]), 1 + moved)
    assert after.moments["biased"].mean.tolist() == (MEAN - SHIFT).tolist()
    assert "up to 4 of 2 of 4 channels goes to `second`" in trace.rewrites[0].after


def test_below_three_deviations_the_error_is_that_of_the_log() -> None:
    g, y = start()
    after, trace = absorbed(g, relu_identity(g, y))
    said = float(trace.rewrites[0].after.rpartition(" ")[2])
    x = normals(4000)
    moved = evaluate(after, {"x": x})["y"] - evaluate(g, {"x": x})["y"]
    worst = np.abs(moved.mean(axis=(0, 1, 2))).max()
    assert worst == pytest.approx(said, rel=0.3)
    assert said == pytest.approx(3.8e-4 * DEVIATION[0], rel=0.1)  # E[(-3 - z)+] deviations


def mean_above_zero(mean: float, deviation: float) -> float:
    """E[max(x, 0)] of a normal x."""
    z = mean / deviation
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return mean * (1 + math.erf(z / math.sqrt(2))) / 2 + deviation * density


def test_the_log_counts_what_relu_cut_before_too() -> None:
    g, y = start()
    g.moments[y] = Moments(np.array([3.1, 0, 0, 0]), np.array([1.0, 1, 1, 1]))
    _, trace = absorbed(g, relu_identity(g, y))
    said = float(trace.rewrites[0].after.rpartition(" ")[2])
    wanted = abs(mean_above_zero(3.1, 1) - 0.1 - mean_above_zero(3, 1))
    assert said == pytest.approx(wanted, rel=0.05)


def relu_identity(g: Graph, y: str) -> str:
    w = g.const(np.eye(4).reshape(1, 1, 4, 4), "eye")
    return g.add("conv2d", g.add("relu", y), w, attrs={**WINDOW, "padding": "same"})


def through_pool(g: Graph, y: str) -> str:
    y = g.add("max_pool", relu(g, y), attrs={"ksize": (2, 2), "strides": (2, 2),
                                             "padding": "same"})  # fmt: skip
    return conv(g, y)


def through_average(g: Graph, y: str) -> str:
    y = g.add("avg_pool", relu(g, y), attrs={"ksize": (2, 2), "strides": (2, 2),
                                             "padding": "valid"})  # fmt: skip
    g.outputs["y"] = conv(g, y)
    g.facts.clear()
    PassManager(FLOAT).run(g)
    return g.outputs["y"]


def through_flatten(g: Graph, y: str) -> str:
    y = g.add("reshape", relu(g, y), attrs={"shape": (-1, 144)})
    return g.add("matmul", y, g.const(RNG.normal(size=(144, 5)), "w"))


def through_mean(g: Graph, y: str) -> str:
    y = g.add("mean", relu6(g, y), attrs={"axes": (1, 2), "keepdims": False})
    return g.add("matmul", y, g.const(RNG.normal(size=(4, 5)), "w"))


def to_two_layers(g: Graph, y: str) -> str:
    y = relu(g, y)
    return g.add("add", conv(g, y, "left"), conv(g, y, "right"))


def to_depthwise(g: Graph, y: str) -> str:
    w = g.const(RNG.normal(size=(3, 3, 4, 2)), "dw")
    return g.add("depthwise_conv2d", relu(g, y), w, attrs={**WINDOW, "padding": "valid"})


@pytest.mark.parametrize(
    "way",
    [through_pool, through_average, through_flatten, through_mean, to_two_layers, to_depthwise],
)
def test_ways_to_the_next_layer(way) -> None:
    g, y = start()
    after, trace = absorbed(g, way(g, y))
    assert len(trace.rewrites) == 1
    bias = after.nodes[after.producer("biased").name].inputs[1]
    assert after.constant(bias).tolist() == (MEAN - SHIFT).tolist()
    assert_same(g, after, normals(low=-3))


def padded(g: Graph, y: str) -> str:
    return conv(g, relu(g, y), padding="same")


def shown(g: Graph, y: str) -> str:
    g.outputs["seen"] = y = relu(g, y)
    return conv(g, y)


def to_sigmoid(g: Graph, y: str) -> str:
    return g.add("sigmoid", relu(g, y))


def clip_by_row(g: Graph, y: str) -> str:
    """The offset of a channel has no single clip to be taken from."""
    bound = g.const(RNG.uniform(9, 12, (6, 4)), "bound")
    return conv(g, g.add("minimum", relu(g, y), bound, name="by_row"))


def to_padded_pool(g: Graph, y: str) -> str:
    y = relu(g, y)
    ninth = g.const(np.full((3, 3, 4, 1), 1 / 9), "ninth")
    attrs = {**WINDOW, "padding": "same", "pool": True}
    return conv(g, g.add("depthwise_conv2d", y, ninth, name="pool", attrs=attrs))


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        (padded, "`second` pads with zeros"),
        (shown, "output `seen`"),
        (to_sigmoid, "`sigmoid` (sigmoid), which is not a layer"),
        (to_padded_pool, "`pool` pads with zeros"),
        (clip_by_row, "`by_row` (minimum), which is not a layer"),
    ],
)
def test_refusals(way, reason) -> None:
    g, y = start()
    y = way(g, y)
    after, trace = absorbed(g, y)
    assert after.nodes == g.nodes and reason in trace.refusals[0].reason


def test_without_statistics_nothing_moves() -> None:
    g, y = start()
    g.moments.clear()
    after, trace = absorbed(g, conv(g, relu(g, y)))
    assert after.nodes == g.nodes and not trace.refusals


def test_batch_norm_to_absorption_by_the_recipe() -> None:
    """Statistics survive folding and equalization, which scales channels."""
    g = Graph("net")
    x = g.input("x", "float64", (None, 6, 6, 4))
    vectors = [np.array([1.0, 2, 0.5, 1]), MEAN, np.zeros(4), np.array([1.0, 4, 2, 1])]
    y = conv_square(g, x)
    names = [g.const(v, n) for v, n in zip(vectors, "gbmv", strict=True)]
    y = g.add("batch_norm", y, *names, attrs={"epsilon": 0.0}, name="bn")
    g.outputs["y"] = conv(g, g.add("relu", y))
    after, trace = g.copy(), Trace()
    PassManager(prepare(Plan(equalize="weights", absorb=True))).run(after, trace)
    (rewrite,) = trace.of_pass("absorb-biases")[0]
    assert "of 3 of 4 channels" not in rewrite.after and "of 2 of 4 channels" in rewrite.after
    bias = after.constant(after.nodes["bn"].inputs[1])
    scale = after.moments["bn"].deviation / vectors[0]  # what equalization did
    np.testing.assert_allclose(
        after.moments["bn"].mean, np.where(3 * vectors[0] < MEAN, 3 * vectors[0], MEAN) * scale
    )
    assert bias.shape == (4,)
    few = RNG.normal(size=(2, 6, 6, 4)) * 0.1
    np.testing.assert_allclose(evaluate(after, {"x": few})["y"], evaluate(g, {"x": few})["y"],
                               rtol=1e-9)  # fmt: skip


def conv_square(g: Graph, x: str) -> str:
    w = g.const(RNG.normal(size=(1, 1, 4, 4)), "w1")
    return g.add("conv2d", x, w, name="first", attrs={**WINDOW, "padding": "valid"})
