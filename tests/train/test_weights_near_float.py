"""Training starts from the codes that a reconstruction chose, and small steps keep them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import qgraph
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.ir.types import QuantSpec
from qgraph.numerics import quantize
from qgraph.quant.topology import QUANTIZERS
from qgraph.train.data import training_data
from qgraph.train.loop import Trainer
from qgraph.train.options import Options
from qgraph.train.weights_near_float import with_weights_near_float


@given(st.integers(2, 8), st.integers(-3, 9), st.integers(0, 2**32 - 1))
def test_weights_stay_well_within_their_codes(bits: int, exponent: int, seed: int) -> None:
    rng, spec = np.random.default_rng(seed), QuantSpec(bits, True, "weight", exponent)
    floats = np.ldexp(rng.uniform(spec.lo - 3, spec.hi + 3, 40), -exponent).astype(np.float32)
    codes = np.clip(np.rint(np.ldexp(floats, exponent)) + rng.integers(-1, 2, 40), spec.lo, spec.hi)
    chosen = np.ldexp(codes, -exponent).astype(np.float32)

    def network(weights: np.ndarray, quantized: bool) -> Graph:
        g = Graph("net")
        x, w = g.input("x", "float32", (None, 8)), g.const(weights.reshape(8, 5), "w")
        w = g.add("quantize", w, name="w/q", attrs={"spec": spec}) if quantized else w
        g.outputs["y"] = g.add("matmul", x, w)
        return g

    made = with_weights_near_float(network(chosen, True), network(floats, False))
    found = made.constant("w").reshape(-1)
    step = np.ldexp(1.0, -exponent)
    for moved in (found, found - 0.24 * step, found + 0.24 * step):
        assert quantize(moved.astype(np.float32), spec).codes.tolist() == codes.tolist()
    # They lie on the side of the float weights.
    assert (np.abs(found - floats) <= np.abs(chosen - floats) + 1e-6 * step).all()


def test_the_first_steps_keep_the_codes_of_the_static_network() -> None:
    rng, g = np.random.default_rng(0), Graph("net")
    x = g.input("x", "float32", (None, 12))
    for size, before in ((16, 12), (5, 16)):
        w = g.const(rng.normal(size=(before, size)).astype(np.float32))
        bias = g.const(rng.normal(size=size).astype(np.float32))
        x = g.add("relu", g.add("bias_add", g.add("matmul", x, w), bias))
    g.outputs["y"] = x
    data = {"x": rng.normal(size=(64, 12)).astype(np.float32)}
    made = qgraph.quantize(
        g, data, mode="retrain", profile="graffitist-int4", plan="method=mse,reconstruct"
    )
    options = Options(epochs=1, batch_size=16, weight_rate=1e-5, threshold_rate=1e-6)
    part = training_data(data, made.graph, 16, 0)
    trainer = Trainer(made.graph.copy(), made.floating, (), part, None, options)
    trainer.run()
    finalized = trainer.model.finalized()
    compared = 0
    for node in made.graph.topological():
        held = made.graph.constant(node.inputs[0]) if node.op in QUANTIZERS else None
        if held is not None and spec_of(node).role == "weight":
            after = finalized.constant(node.inputs[0])
            assert (
                quantize(held, spec_of(node)).codes == quantize(after, spec_of(node)).codes
            ).all()
            compared += held.size
    assert compared == 12 * 16 + 16 * 5
