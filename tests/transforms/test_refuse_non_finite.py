"""Parameters that are not finite end in an error that names layer, constant and place."""

import numpy as np
import pytest

import qgraph
from qgraph.errors import ExactnessError
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.recipes import RECIPES
from tests.helpers.layers import WINDOW

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 4, 4, 2)).astype(np.float32)
BAD = (np.inf, -np.inf, np.nan)


def network(**changes) -> Graph:
    """Layers and norms of each kind; `changes` are numbers to put into constants, by name."""
    g = Graph("net")
    rng = np.random.default_rng(1)

    def const(name: str, *shape: int, low: float = -1.0) -> str:
        value = rng.uniform(low, 1, shape).astype(np.float32)
        if name in changes:
            value.flat[min(1, value.size - 1)] = changes[name]
        return g.const(value, name)

    y = g.input("x", "float32", (None, 4, 4, 2))
    y = g.add("conv2d", y, const("w", 3, 3, 2, 3), name="conv", attrs=WINDOW)
    statistics = [
        const("gamma", 3),
        const("beta", 3),
        const("mean", 3),
        const("variance", 3, low=0.1),
    ]
    y = g.add("batch_norm", y, *statistics, name="bn", attrs={"epsilon": 1e-3})
    y = g.add("relu", y)
    y = g.add("depthwise_conv2d", y, const("dw", 3, 3, 3, 1), name="depthwise", attrs=WINDOW)
    y = g.add("bias_add", y, const("b", 3), name="biased")
    y = g.add(
        "layer_norm", y, const("scale", 3), const("offset", 3), name="ln", attrs={"epsilon": 1e-5}
    )
    y = g.add("reshape", y, name="flat", attrs={"shape": (-1, 48)})
    g.outputs["y"] = g.add("matmul", y, const("fc", 48, 2), name="dense")
    return g


LAYERS = {
    "w": "conv", "gamma": "bn", "beta": "bn", "mean": "bn", "variance": "bn", "dw": "depthwise",
    "b": "biased", "scale": "ln", "offset": "ln", "fc": "dense",
}  # fmt: skip


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("name", LAYERS)
def test_a_parameter_that_is_not_finite_names_its_layer(name, value):
    message = (
        f"^{LAYERS[name]}: its constant `{name}` is {'NaN' if np.isnan(value) else 'infinite'} at"
    )
    for recipe in ("static", "policy"):
        with pytest.raises(ExactnessError, match=message):
            PassManager(RECIPES[recipe]).run(network(**{name: value}))


@pytest.mark.parametrize("mode", ["static", "retrain"])
@pytest.mark.parametrize("data", [True, False])
def test_both_modes_refuse_it_with_and_without_data(mode, data):
    with pytest.raises(ExactnessError, match="`fc` is infinite at"):
        qgraph.quantize(network(fc=np.inf), {"x": X} if data else None, mode=mode)


@pytest.mark.parametrize("value", [-1e-3, -0.5, -1e30])
def test_a_variance_of_minus_epsilon_or_less_is_refused(value):
    with pytest.raises(ExactnessError, match=r"^bn: gamma / sqrt.*channel 1: the variance is -"):
        PassManager(RECIPES["static"]).run(network(variance=np.float32(value)))


def test_a_variance_just_above_minus_epsilon_is_folded():
    PassManager(RECIPES["float"]).run(network(variance=np.float32(-0.9e-3)))


def test_open_clips_and_masks_in_front_of_a_softmax_are_left():
    """Infinity has a meaning there: nothing is clipped, nothing is taken."""
    g = Graph("net")
    x = g.input("x", "float32", (None, 4))
    y = g.add("matmul", x, g.const(RNG.normal(size=(4, 3)).astype(np.float32), "w"))
    y = g.add("minimum", y, g.const(np.float32(np.inf), "open"))
    y = g.add("relu", y)
    y = g.add("matmul", y, g.const(RNG.normal(size=(3, 3)).astype(np.float32), "v"), name="logits")
    y = g.add("softmax", y, attrs={"axis": 1})
    g.outputs["y"] = g.add("add", g.add("log", y), g.const(np.float32([0, -np.inf, 0]), "mask"))
    made = qgraph.quantize(g, {"x": X.reshape(-1, 4)}, effort="plain")
    assert min(made.sqnr.values()) > 20


@pytest.mark.parametrize("value", BAD)
def test_what_would_be_quantized_is_refused_wherever_it_comes_from(value):
    """An operand of a sum may be infinite in float; on integers it cannot be."""
    g = Graph("net")
    x = g.input("x", "float32", (None, 4))
    y = g.add("matmul", x, g.const(np.eye(4, dtype=np.float32)))
    extra = g.const(np.full((1, 4), value, np.float32), "extra")
    g.outputs["y"] = g.add("add", g.add("relu", y), extra, name="sum")
    with pytest.raises(ExactnessError, match=r"extra"):
        qgraph.quantize(g, {"x": X.reshape(-1, 4)}, effort="plain")
