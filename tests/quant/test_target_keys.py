"""Keys that targets ask for: what they do to quantizers, and every form equal to the reference."""

from dataclasses import fields, replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qgraph.ir.graph import Graph
from qgraph.ir.types import ROUNDINGS, Role
from qgraph.passes import PassManager
from qgraph.program import lower
from qgraph.quant.profile import Profile
from qgraph.recipes import FLOAT
from tests.helpers.forms import check_every_form
from tests.helpers.generators.graphs import graphs
from tests.helpers.generators.profiles import profiles
from tests.helpers.layers import WINDOW
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
        window = WINDOW
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


# -- rounding by kind of op -------------------------------------------------------------------

KINDS = replace(
    INT8,
    rounding="half_even",
    rounding_additions="half_up",
    rounding_constants="half_away",
    rounding_inputs="floor",
)
ROUNDING = st.sampled_from(ROUNDINGS)
BORDERS = {"ksize": (3, 3), "strides": (1, 1), "padding": "same"}


def test_each_kind_of_op_has_its_rounding():
    found = {name: spec.rounding for name, spec in specs(made(KINDS)).items()}
    assert found == {
        "x/q8": "floor",
        "first/w/q8": "half_away",
        "first/b/q16": "half_away",
        "first/q16": "half_even",
        "relu/q8": "half_even",
        "second/w/q8": "half_away",
        "second/b/q16": "half_away",
        "second/q16": "half_even",
        "second/bias/q8": "half_even",
        "sum/relu/q8": "half_up",
        "table": "half_away",
    }


def test_a_rounding_of_layers_is_that_of_all_kinds_unless_they_have_their_own():
    floor = replace(INT8, rounding="floor")
    assert {s.rounding for s in specs(made(floor)).values()} == {"floor"}
    kept = replace(floor, rounding_constants="half_even")
    found = specs(made(kept))
    assert {s.rounding for s in found.values() if s.role.of_constant} == {"half_even"}
    assert found["table"].rounding == "half_even" and found["first/q16"].rounding == "floor"


def test_weights_of_a_shifter_that_floors_are_rounded_to_nearest():
    """`floor` in the shifter of a target must not floor its weights."""
    graph = made(replace(INT8, rounding="floor", rounding_constants="half_even"))
    spec, w = specs(graph)["first/w/q8"], graph.constant("first/w")
    codes = lower(graph).constants["first/w/q8"]
    np.testing.assert_array_equal(codes, np.rint(w.astype(np.float64) * 2.0**spec.exponent))


def test_a_sum_behind_leaky_relu_or_clips_rounds_as_a_sum():
    """Ops behind the sum keep it a sum; the product and the maximum belong to a layer."""
    g = Graph("behind")
    x = g.input("x", "float32", (None, 4))
    summed = g.add("add", g.add("relu", x, name="a"), x, name="sum")
    leaky = g.add("leaky_relu", summed, name="leaky", attrs={"alpha": 0.25})
    bounded = g.add("minimum", g.add("sub", x, leaky, name="less"), g.const(np.float32(1), "one"))
    g.outputs["y"] = g.add("relu", bounded, name="y")
    PassManager(FLOAT).run(g)
    found = specs(quantize(g, KINDS, {"x": RNG.normal(size=(32, 4)).astype(np.float32)}))
    roundings = {n: s.rounding for n, s in found.items() if not s.role.of_constant}
    assert roundings.pop("x/q8") == "floor" and roundings.pop("y/q8") == "half_up"
    by_producer = {name.rsplit("/", 1)[0]: rounding for name, rounding in roundings.items()}
    assert by_producer["sum"] == "half_up" and by_producer["leaky"] == "half_even"


def test_products_have_their_own_rounding():
    """Products by element, constant factors and leaky ReLU; averages and matrices are layers."""
    g = Graph("products")
    x = g.input("x", "float32", (None, 4, 4, 2))
    squared = g.add("relu", g.add("mul", x, x, name="square"), name="squared")
    scaled = g.add("mul", x, g.const(np.float32([0.5, 3]), "factors"), name="scaled")
    total = g.add("add", squared, scaled, name="total")
    leaky = g.add("leaky_relu", total, name="leaky", attrs={"alpha": 0.25})
    pooled = g.add("avg_pool", leaky, name="pooled", attrs=BORDERS)
    turned = g.add("transpose", pooled, name="turned", attrs={"perm": (0, 1, 3, 2)})
    g.outputs["y"] = g.add("batch_matmul", pooled, turned, name="matrices")
    data = {"x": RNG.normal(size=(8, 4, 4, 2)).astype(np.float32)}
    PassManager(FLOAT).run(g)
    found = specs(quantize(g, replace(KINDS, rounding_products="double"), data))
    roundings = {n: s.rounding for n, s in found.items() if not s.role.of_constant}
    assert roundings == {
        "x/q8": "floor",
        "squared/q8": "double",
        "scaled/q8": "double",
        "total/q16": "half_up",
        "leaky/scaled/q16": "double",
        "leaky/q8": "half_even",
        "pooled/q8": "half_even",
        "matrices/q8": "half_even",
    }


@FEW
@given(graphs(), profiles(), st.tuples(*[ROUNDING] * 5), st.integers(0, 99))
def test_roundings_by_kind_in_every_form(graph, profile, roundings, seed):
    names = [f.name for f in fields(Profile) if f.name.startswith("rounding")]
    target = replace(profile, **dict(zip(names, roundings, strict=True)))
    check_every_form(graph, target, seed)
