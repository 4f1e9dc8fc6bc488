"""Float graphs as ONNX models: op by op, and whole networks, as ONNX Runtime executes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from qgraph.backends.onnx.floats.lower import LOWERINGS
from qgraph.backends.onnx.floats.write import float_model
from qgraph.backends.onnx.runners import session
from qgraph.errors import UnsupportedError
from qgraph.frontends import load
from qgraph.frontends.onnx import import_model, read
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.ops import OPS
from qgraph.ir.types import QuantSpec
from qgraph.passes import PassManager
from qgraph.recipes import FLOAT
from tests.helpers.generators.graphs import graphs, random_graph
from tests.helpers.layers import WINDOW
from tests.helpers.onnx_graphs import model_of
from tests.helpers.op_graphs import CASES, biased, conv, image, in_nchw, normal


def feeds_of(g: Graph, batch: int = 2, seed: int = 3) -> dict[str, Any]:
    rng, feeds = np.random.default_rng(seed), {}
    for name in g.inputs:
        kind = g.types[name]
        x = 2 * rng.normal(size=[batch if d is None else d for d in kind.shape])
        feeds[name] = x > 0 if kind.dtype == "bool" else np.rint(x) if kind.dtype[0] == "i" else x
        feeds[name] = feeds[name].astype(kind.dtype)
    return feeds


def assert_same(g: Graph, rtol: float = 2e-5, batch: int = 2) -> onnx.ModelProto:
    """ONNX Runtime's results for the written graph, optimised and not, equal the graph's."""
    model, feeds = float_model(g), feeds_of(g, batch)
    wanted = evaluate(g, feeds)
    names = [o.name for o in model.graph.output]
    for optimised in (True, False):
        found = session(model, optimised).run(names, feeds)
        for name, ours, theirs in zip(names, wanted.values(), found, strict=True):
            assert theirs.shape == ours.shape and theirs.dtype == ours.dtype, name
            scale = np.abs(ours.astype(np.float64)).max(initial=0) if ours.dtype != bool else 1
            np.testing.assert_allclose(theirs, ours, rtol=rtol, atol=rtol * scale, err_msg=name)
    return model


# -- op by op ------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_every_op_that_is_written_has_a_case(op):
    assert op in LOWERINGS.refused or CASES.get(op), (
        f"`{op}` has no case in tests/helpers/op_graphs.py"
    )


def test_every_case_is_of_an_op():
    assert CASES.keys() <= OPS.keys()


LOWERED = [(op, i) for op, cases in CASES.items() for i in range(len(cases)) if op != "opaque"]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(("op", "index"), LOWERED)
def test_an_op_computes_the_same(op, index, layout):
    g, build = Graph("net"), CASES[op][index]
    with np.errstate(all="ignore"):
        g.outputs["y"] = (build if layout == "NHWC" else in_nchw(build))(g)
        assert any(node.op == op for node in g.nodes.values())
        assert_same(g)


@pytest.mark.parametrize("op", ["expm1", "log1p"])
def test_numbers_near_zero_keep_their_digits(op):
    g = Graph("net")
    g.outputs["y"] = g.add(op, g.input("x", "float32", (None,)))
    x = np.float32([s * m * 10.0**-p for p in range(12) for m in (1, 3, 7) for s in (1, -0.1)])
    x = np.append(x, np.float32([0, np.inf, 0.4999, 0.5, 80]))
    (found,) = session(float_model(g), True).run(None, {"x": x})
    wanted = getattr(np, op)(x.astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


# -- what cannot be written ----------------------------------------------------------------------


def refusal(g: Graph, value: str) -> str:
    g.outputs["y"] = value
    with pytest.raises(UnsupportedError) as error:
        float_model(g)
    assert error.value.node
    return str(error.value)


def test_fixed_point_is_refused_with_a_reason():
    g = Graph("net")
    made = g.add("quantize", image(g), name="q", attrs={"spec": QuantSpec(8, True, "input", 3)})
    message = refusal(g, made)
    assert message.startswith("q: a float ONNX model cannot contain `quantize`: it is fixed-point")


def test_integers_that_onnx_computes_otherwise_are_refused():
    g = Graph("net")
    x = image(g, 3, dtype="int32")
    assert "`pow` of int32 has no equivalent in ONNX" in refusal(g, g.add("pow", x, x, name="n"))


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("resize_nearest", {"size": (9, 9)}),
        ("space_to_batch", {"block": (2, 2), "paddings": ((0, 0), (0, 0))}),
        ("pad", {"paddings": ((0, 0), (1, 1), (0, 0), (0, 0)), "mode": "symmetric"}),
    ],
)
def test_sizes_that_have_to_be_known_are_asked_for(op, attrs):
    g = Graph("net")
    message = refusal(g, g.add(op, image(g, None, None, None, 4), name="n", attrs=attrs))
    assert message.startswith(f"n: `{op}` needs sizes that are open") and "--input-shape" in message


def test_a_dilated_window_with_strides_needs_sizes():
    g = Graph("net")
    y = conv(g, shape=(None, None, 9, 4), strides=(2, 1), dilations=(2, 1))
    assert "a dilated window with strides over an open size" in refusal(g, y)


# -- whole networks ------------------------------------------------------------------------------


@pytest.mark.parametrize("rewritten", [False, True])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_networks(rewritten, seed):
    g = random_graph(seed, 8, "float32")
    if rewritten:
        PassManager(FLOAT).run(g)
    assert_same(g, rtol=1e-4)


@settings(max_examples=25)
@given(graphs())
def test_drawn_networks(g):
    with np.errstate(all="ignore"):
        PassManager(FLOAT).run(g)
        model = float_model(g)
        feeds = feeds_of(g)
        wanted = evaluate(g, feeds)
        found = session(model, True).run(list(wanted), feeds)
    for ours, theirs in zip(wanted.values(), found, strict=True):
        assert theirs.shape == ours.shape
        size = np.abs(ours[np.isfinite(ours)]).max(initial=1e-3)  # NaN is not a tolerance
        np.testing.assert_allclose(theirs, ours, atol=1e-3 * size)


def test_layers_that_follow_each_other_turn_nothing_between_them():
    g = Graph("net")
    y = g.add("transpose", image(g, None, 3, 8, 8), attrs={"perm": (0, 2, 3, 1)})
    for _ in range(3):
        w = g.const(normal(3, 3, g.types[y].shape[3], 4))
        window = WINDOW
        y = g.add("bias_add", g.add("conv2d", y, w, attrs=window), g.const(normal(4)))
        y = g.add("relu", y)
    g.outputs["y"] = g.add("transpose", y, attrs={"perm": (0, 3, 1, 2)})
    model = assert_same(g)
    assert [n.op_type for n in model.graph.node] == ["Conv", "Relu"] * 3 + ["Identity"]
    assert all(len(n.input) == 3 for n in model.graph.node if n.op_type == "Conv")


def test_an_open_batch_stays_open():
    g = Graph("net")
    g.outputs["y"] = biased(g)
    model = float_model(g)
    (x,), (y,) = model.graph.input, model.graph.output
    for value in (x, y):
        dims = value.type.tensor_type.shape.dim
        assert not dims[0].HasField("dim_value") and all(d.dim_value for d in dims[1:])
    for batch in (1, 5):
        assert_same(g, batch=batch)


HOSTILE = ["", "x", "x/NHWC", "a b", "ü:0", 'q"', "\n", "\ud800", "x_1"]


def test_names_of_ends_are_kept_whatever_they_are():
    g = Graph("net/\ud800")
    for name in HOSTILE:
        x = g.input(name or "n", "float32", (None, 3, 3, 2))
        g.outputs[f"out {name}"] = g.add("relu", x)
    g.outputs["x"] = g.nodes["x"].name  # an output that is an input
    g.outputs["a b"] = g.outputs["out x"]  # and one that has the name of another input
    model = float_model(g)
    ends = {n.name for n in model.graph.input} | {n.name for n in model.graph.output}
    assert {"x", "x/NHWC", "a b", "ü:0", 'q"', "\n", "out a b", "a b_1", "?"} <= ends
    feeds = {n.name: normal(2, 3, 3, 2) for n in model.graph.input}
    found = dict(
        zip(
            [o.name for o in model.graph.output],
            session(model, True).run(None, feeds),
            strict=True,
        )
    )
    assert np.array_equal(found["x"], feeds["x"])
    assert np.array_equal(found["a b_1"], np.maximum(feeds["x"], 0))
    assert np.array_equal(found["out ü:0"], np.maximum(feeds["ü:0"], 0))


# -- ops that are not supported -----------------------------------------------------------------


def unsupported(opset: int) -> onnx.ModelProto:
    """A part of an image with elements outside, and a remainder of floats, between two layers."""
    region = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 0.5}
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Resize", ["r", "roi", "scales"], ["part"], mode="linear", **region),
        helper.make_node("Mod", ["part", "two"], ["rest"], fmod=1),
        helper.make_node("Conv", ["rest", "w"], ["y"]),
    ]
    constants = {
        "roi": np.float32([0, 0, -0.2, 0, 1, 1, 1, 1.2]), "scales": np.float32([1, 1, 2, 2]),
        "two": np.float32(2), "w": normal(2, 3, 1, 1),
    }  # fmt: skip
    return model_of(nodes, {"x": ("N", 3, 4, 4)}, constants=constants, opset=opset)


@pytest.mark.parametrize("opset", [11, 13, 18, 19, 21])
def test_unsupported_ops_of_an_onnx_file_are_unchanged(opset):
    original = unsupported(opset)
    g = import_model(read(original))
    PassManager(FLOAT).run(g)
    assert {n.attrs["kind"] for n in g.nodes.values() if n.op == "opaque"} == {"Resize", "Mod"}
    model = float_model(g)
    assert model.opset_import[0].version == max(18, opset if opset > 18 else 18)
    x = {"x": normal(2, 3, 4, 4)}
    (wanted,) = session(original, False).run(None, x)
    (found,) = session(model, True).run(None, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_an_op_with_several_outputs_stays_as_it_is():
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["values", "places"]),
        helper.make_node("Cast", ["places"], ["floats"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", ["values", "floats"], ["y"]),
    ]
    original = model_of(nodes, {"x": ("N", 9)}, constants={"k": np.int64([3])})
    g = import_model(read(original))
    x = {"x": normal(4, 9)}
    (wanted,) = session(original, False).run(None, x)
    (found,) = session(float_model(g), True).run(None, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_an_op_of_tensorflow_is_refused_by_name(tmp_path):
    import tensorflow as tf

    from tests.helpers.tf_graphs import graph_def_of, v1

    def build():
        x = v1.placeholder("float32", (None, 4, 4, 2), "x")
        return tf.identity(tf.math.lgamma(x, name="odd"), name="y")

    (tmp_path / "net.pb").write_bytes(graph_def_of(build).SerializeToString())
    g = load(tmp_path / "net.pb")
    kind = next(n.attrs["kind"] for n in g.nodes.values() if n.op == "opaque")
    with pytest.raises(UnsupportedError, match=f"`{kind}` is not supported and not an ONNX op"):
        float_model(g)
