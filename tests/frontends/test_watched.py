"""An importer that leaves something of a node unread has not expressed it."""

import numpy as np
import pytest
import tensorflow as tf
from onnx import helper

from qgraph.frontends.onnx import builder, importing
from qgraph.frontends.onnx.ops import IMPORTERS
from qgraph.frontends.tf import importing as tf_importing
from qgraph.frontends.watched import WatchedAttributes, WatchedInputs
from qgraph.interpret import evaluate
from qgraph.ir.cast import cast_floats
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import f, imported, model_of, one_op
from tests.helpers.tf_graphs import assert_same_as_tf, graph_def_of, v1

X = f(1, 8, 4, 4)


def test_attributes_are_read_by_their_value_alone():
    attrs = WatchedAttributes({"a": 1, "b": 2, "c": 3})
    assert "a" in attrs and len(attrs) == 3 and attrs.get("b") == 2 and attrs.get("d") is None
    attrs.mark(["c"])
    assert attrs.unread() == ["a"]


def test_inputs_are_read_by_index_slice_and_iteration():
    def unread(take):
        inputs = WatchedInputs(["a", "b", "", "c"])
        take(inputs)
        return inputs.unread()

    assert unread(len) == [0, 1, 3]
    assert unread(lambda i: i[-1]) == [0, 1]
    assert unread(lambda i: i[1:]) == [0]
    assert unread(list) == [] == unread(lambda i: max(*i))
    assert unread(lambda i: i.mark([0, 3])) == [1]


@pytest.fixture
def without_definitions(monkeypatch):
    """Ops are not read by ONNX's definitions of them."""
    monkeypatch.setattr(builder, "by_other_ops", lambda model: None)


@pytest.fixture
def forgetful(monkeypatch):
    """An importer of SpaceToDepth from before the op had a `mode`."""

    def importer(site):
        x = site.helper("to_nhwc", "transpose", site.inputs[0], perm=(0, 2, 3, 1))
        made = site.helper("nhwc", "space_to_depth", x, block=site.node.integer("blocksize"))
        return site.emit("transpose", made, perm=(0, 3, 1, 2))

    monkeypatch.setattr(importing, "IMPORTERS", {**IMPORTERS, "SpaceToDepth": importer})


@pytest.mark.usefixtures("without_definitions")
@pytest.mark.parametrize(("mode", "left"), [("DCR", []), ("CRD", ["SpaceToDepth"])])
def test_attribute_that_is_not_read_leaves_the_node_to_its_source(forgetful, mode, left):
    graph = imported(one_op("SpaceToDepth", X, blocksize=2, mode=mode, opset=28))
    assert opaque_kinds(graph) == left
    if left:  # nothing of the attempt is left
        assert [n.op for n in graph.nodes.values()] == ["input", "opaque"]
    assert graph.unread == ({"y": "attribute `mode` (CRD)"} if left else {})
    assert graph.copy().unread == cast_floats(graph, "float64").unread == graph.unread
    x = X.reshape(1, 8, 2, 2, 2, 2)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    wanted = x.transpose(order).reshape(1, 32, 2, 2)
    assert np.array_equal(evaluate(graph, {"x": X})["y"], wanted)


def test_attribute_that_is_not_read_leaves_the_node_to_its_definition(forgetful):
    graph = imported(one_op("SpaceToDepth", X, blocksize=2, mode="CRD", opset=28))
    assert opaque_kinds(graph) == [] and not graph.unread
    wanted = X.reshape(1, 8, 2, 2, 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 32, 2, 2)
    assert np.array_equal(evaluate(graph, {"x": X})["y"], wanted)


@pytest.mark.usefixtures("without_definitions")
def test_input_that_is_not_read_leaves_the_node_to_its_source(monkeypatch):
    def importer(site):
        return site.emit("maximum", site.inputs[0], site.inputs[1])

    monkeypatch.setattr(importing, "IMPORTERS", {**IMPORTERS, "Clip": importer})
    assert opaque_kinds(imported(one_op("Clip", X, np.float32(-1)))) == []
    left = imported(one_op("Clip", X, np.float32(-1), np.float32(1)))
    assert opaque_kinds(left) == ["Clip"]
    assert left.unread["y"].startswith("input 2 (`")


def test_outputs_that_nothing_uses_do_not_count():
    nodes = [helper.make_node("MaxPool", ["x"], ["y", "indices"], kernel_shape=[2, 2])]
    assert opaque_kinds(imported(model_of(nodes, {"x": X.shape}))) == []


@pytest.mark.parametrize(("alpha", "left"), [(0.2, []), (0.3, ["LeakyRelu"])])
def test_tensorflow_attribute_that_is_not_read_leaves_the_node_to_its_source(
    monkeypatch, alpha, left
):
    def importer(site):
        return site.emit("leaky_relu", site.inputs[0], alpha=0.2)

    kept = {**tf_importing.IMPORTERS, "LeakyRelu": importer}
    monkeypatch.setattr(tf_importing, "IMPORTERS", kept)
    build = lambda: tf.nn.leaky_relu(v1.placeholder("float32", (None, 6), "x"), alpha)  # noqa: E731
    assert opaque_kinds(assert_same_as_tf(graph_def_of(build))) == left
