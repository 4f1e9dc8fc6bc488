"""Keys that targets ask for: what they do to quantizers, and every form equal to the reference."""

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qgraph.ir.graph import Graph
from qgraph.ir.types import Role
from qgraph.passes import PassManager
from qgraph.quant.profile import Profile
from qgraph.recipes import FLOAT
from tests.helpers.drawn_graphs import graphs, profiles
from tests.helpers.every_form import check_every_form
from tests.helpers.quantized import INT8, quantize

FEW = settings(
    max_examples=5, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
RNG = np.random.default_rng(0)


def residual(seed: int = 0) -> Graph:
    """A convolution with ReLU, a sum with ReLU, a table and a concat, on `x` [?, 4, 4, 3]."""
    rng = np.random.default_rng(seed)
    g = Graph("residual")
    x = g.input("x", "float32", (None, 4, 4, 3))

    def conv(value: str, name: str, inputs: int) -> str:
        w = g.const(rng.normal(size=(3, 3, inputs, 4)).astype(np.float32) / 4, f"{name}/w")
        b = g.const(rng.normal(size=4).astype(np.float32) / 4, f"{name}/b")
        window = {"strides": (1, 1), "dilations": (1, 1), "padding": "same"}
        made = g.add("conv2d", value, w, name=name, attrs=window)
        return g.add("bias_add", made, b, name=f"{name}/bias")

    first = g.add("relu", conv(x, "first", 3), name="relu")
    second = conv(first, "second", 4)
    added = g.add("relu", g.add("add", first, second, name="sum"), name="sum/relu")
    table = g.add("sigmoid", added, name="table")
    g.outputs["y"] = g.add("concat", added, table, name="join", attrs={"axis": 3})
    return g


def made(profile: Profile, x=None) -> Graph:
    g = residual()
    PassManager(FLOAT).run(g)
    x = RNG.random((8, 4, 4, 3)) if x is None else x
    return quantize(g, profile, {"x": np.asarray(x, np.float32)})


def specs(graph: Graph) -> dict:
    """The spec of each quantizer and table, by name."""
    return {n.name: n.attrs["spec"] for n in graph.topological() if "spec" in n.attrs}


# -- signed_activations -----------------------------------------------------------------------

SIGNED = replace(INT8, signed_activations=True)


def test_activations_are_signed_where_nothing_is_negative():
    usual, signed = specs(made(INT8)), specs(made(SIGNED))
    unsigned = {name for name, spec in usual.items() if not spec.signed}
    assert unsigned == {"x/q8", "relu/q8", "sum/relu/q8", "table"}
    assert all(spec.signed for spec in signed.values())
    for name in unsigned - {"x/q8"}:  # half the codes for one range: one bit less of exponent
        assert signed[name].exponent in (usual[name].exponent - 1, usual[name].exponent)
        assert (signed[name].lo, signed[name].hi) == (-128, 127)


@FEW
@given(graphs(), profiles(), st.integers(0, 1000))
def test_signed_activations_in_every_form(graph, profile, seed):
    network = check_every_form(graph, replace(profile, signed_activations=True), seed)
    found = specs(network.graph).values()
    assert all(s.signed for s in found if s.role in (Role.ACTIVATION, Role.INPUT))
