"""The exponent of a scale group, for all of its members at once."""

import numpy as np
import pytest

from qgraph.errors import CalibrationError
from qgraph.ir.graph import Graph
from qgraph.numerics import fake_quantize
from qgraph.quant.calibrate import Calibration, calibrate
from qgraph.quant.topology import QUANTIZERS
from qgraph.recipes import FLOAT
from tests.helpers.generators.graphs import random_graph
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import INT8, insert, quantize

RNG = np.random.default_rng(3)
POINTWISE = WINDOW


def summed() -> Graph:
    g = Graph("sum")
    a, b = (g.input(name, "float32", (None, 16)) for name in "ab")
    g.outputs["y"] = g.add("add", a, b)
    return g


def chain(blocks: int = 3) -> Graph:
    """A residual network: both inputs of each sum are on one scale."""
    g, rng = Graph("residual"), np.random.default_rng(0)
    x = g.input("x", "float32", (None, 4, 4, 8))
    for i in range(blocks):
        w = rng.normal(size=(1, 1, 8, 8)).astype(np.float32) * (0.4 + i)
        y = g.add("conv2d", x, g.const(w, "w"), name=f"conv{i}", attrs=POINTWISE)
        y = g.add("bias_add", y, g.const(rng.normal(size=8).astype(np.float32), "b"))
        x = g.add("add", x, y if i % 2 else g.add("relu", y), name=f"sum{i}")
    g.outputs["y"] = x
    return g


def exponents(g: Graph) -> dict:
    return {n.name: n.attrs["spec"].exponent for n in g.nodes.values() if n.op in QUANTIZERS}


def heavy_tails(*shape: int) -> np.ndarray:
    return (RNG.standard_t(2, shape)).astype(np.float32)


def test_the_least_error_of_all_members_together():
    """`a` alone would be clipped, `b` alone not; what counts is both."""
    g = summed()
    data = {"a": heavy_tails(256, 16), "b": RNG.uniform(-2, 2, (256, 16)).astype(np.float32)}
    quantize(g, INT8, data, "mse")
    spec = g.nodes["a/q8"].attrs["spec"]
    assert spec.group and spec == g.nodes["b/q8"].attrs["spec"]
    error = {
        e: sum(
            float(np.square(fake_quantize(x, spec.with_exponent(e)) - x, dtype=np.float64).sum())
            for x in data.values()
        )
        for e in range(-8, 12)
    }
    assert spec.exponent == min(error, key=error.__getitem__)


def test_members_without_outliers_outvote_one_with():
    """One sweep would take the largest range, which comes from a few outliers."""
    g = summed()
    spiky = RNG.normal(0, 0.1, (2000, 16)).astype(np.float32)
    spiky[7, 3] = 9.0
    quantize(g, INT8, {"a": spiky, "b": RNG.normal(0, 0.1, (2000, 16)).astype(np.float32)}, "max")
    widest = exponents(g)["b/q8"]
    g = summed()
    quantize(g, INT8, {"a": spiky, "b": RNG.normal(0, 0.1, (2000, 16)).astype(np.float32)}, "mse")
    assert exponents(g)["b/q8"] > widest


@pytest.mark.parametrize("method", ["mse", "output"])
def test_the_sweep_runs_on_the_scale_that_members_keep(method):
    """Known from the start, the groups' exponents lead to the same scales everywhere."""
    data = {"x": heavy_tails(32, 4, 4, 8)}
    one, other = quantize(chain(), INT8, data, method), chain()
    specs = {n: one.nodes[n].attrs["spec"] for n in exponents(one)}
    groups = {n: s.exponent for n, s in specs.items() if s.group and s.role != "internal"}
    assert len(groups) >= 6
    insert(other)
    for name, exponent in groups.items():
        spec = other.nodes[name].attrs["spec"]
        other.set_attrs(name, spec=spec.with_exponent(exponent))
    calibrate(other, data, Calibration(method))
    assert exponents(other) == exponents(one)


def test_constants_of_a_group_are_not_clipped():
    g = Graph("net")
    x = g.input("x", "float32", (None, 2))
    g.outputs["y"] = g.add("add", x, g.const(np.float32([[100.0, -3.0]]), "c"))
    quantize(g, INT8, {"x": RNG.uniform(-1, 1, (32, 2)).astype(np.float32)}, "mse")
    assert set(exponents(g).values()) >= {0} and exponents(g)["x/q8"] == 0


def test_a_member_of_zeros_has_no_say():
    g = summed()
    small = (RNG.uniform(-1, 1, (32, 16)) * 2.0**-6).astype(np.float32)
    quantize(g, INT8, {"a": small, "b": np.zeros_like(small)}, "output")
    assert exponents(g)["a/q8"] == exponents(g)["b/q8"] == 13


def test_both_zero():
    g = summed()
    quantize(g, INT8, {name: np.zeros((8, 16), np.float32) for name in "ab"}, "output")
    assert exponents(g)["a/q8"] == exponents(g)["b/q8"] == 8


def test_what_is_not_finite_names_the_member():
    g = Graph("net")
    x = g.input("x", "float32", (None, 4))
    logged = g.add("log", x, name="logged")
    g.outputs["y"] = g.add("add", g.add("matmul", logged, g.const(np.eye(4, dtype="f4"))), x)
    with pytest.raises(CalibrationError, match="NaN or infinite"):
        quantize(g, INT8, {"x": np.zeros((8, 4), np.float32)}, "mse")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("method", ["mse", "output"])
def test_random_networks_have_one_exponent_a_group(seed, method):
    from qgraph.passes import PassManager
    from tests.helpers.evaluate import random_feeds

    g = random_graph(seed, 14, "float32")
    PassManager(FLOAT).run(g)
    quantize(g, INT8, random_feeds(g, batch=8), method)
    groups: dict = {}
    for n in g.nodes.values():
        if n.op in QUANTIZERS and n.attrs["spec"].group:
            groups.setdefault(n.attrs["spec"].group, set()).add(n.attrs["spec"].exponent)
    assert all(len(found) == 1 for found in groups.values())
