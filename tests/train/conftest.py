"""Two small networks, quantized to be trained; tests only read them."""

import numpy as np
import pytest

import qgraph
from qgraph.ir.graph import Graph
from qgraph.quantized import Quantized
from tests.helpers.keras_models import samples
from tests.helpers.trained import images, trained


@pytest.fixture(scope="module")
def small() -> Quantized:
    """Three convolutions with batch norms; its outputs are logits of 5 classes."""
    return qgraph.quantize(trained(), images(), mode="retrain", profile="graffitist-int4")


@pytest.fixture(scope="module")
def plain() -> Quantized:
    """Three layers without batch norms, and a softmax behind them; they compile quickly."""
    rng, g = np.random.default_rng(0), Graph("plain")
    x = g.input("x", "float32", (None, 6))
    for i, shape in enumerate([(6, 12), (12, 12), (12, 4)]):
        x = g.add("relu", x) if i else x
        x = g.add("matmul", x, g.const(rng.normal(size=shape).astype("float32") / 2, f"w{i}"))
    g.outputs["p"] = g.add("softmax", x, attrs={"axis": -1})
    return qgraph.quantize(g, samples(), mode="retrain", profile="graffitist-int4")
