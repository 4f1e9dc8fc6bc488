"""Ops that reach outside a network are refused by name, before anything is run."""

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import helper, numpy_helper

from qgraph.compiler import quantize
from qgraph.errors import GraphError, QGraphError, UnsupportedError
from qgraph.frontends import load, load_graph_def
from qgraph.frontends.side_effects import is_harmless
from tests.helpers.tf_graphs import graph_def_of, v1


def through(op, *inputs, **attributes):
    """A network whose result goes through an op that is written into the graph."""

    def build():
        x = v1.placeholder("float32", (None, 3), "x")
        return tf.nn.relu(x, name="r")

    graph_def = graph_def_of(build)
    node = graph_def.node.add(name="odd", op=op, input=[*inputs])
    for key, value in attributes.items():
        node.attr[key].CopyFrom(value)
    return graph_def


def text_constant(graph_def, name, text):
    node = graph_def.node.add(name=name, op="Const")
    node.attr["dtype"].type = 7
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(text))


def test_ops_of_files_and_python_are_refused(tmp_path):
    text = v1.AttrValue()
    text.list.type.append(1)
    token = v1.AttrValue(s=b"pyfunc_0")
    for op, inputs, attributes in (
        ("ReadFile", ["name"], {}),
        ("MatchingFiles", ["name"], {}),
        ("PyFunc", ["r"], {"Tin": text, "Tout": text, "token": token}),
        ("EagerPyFunc", ["r"], {"Tin": text, "Tout": text, "token": token}),
        ("PyFuncStateless", ["r"], {"Tin": text, "Tout": text, "token": token}),
    ):
        graph_def = through(op, *inputs, **attributes)
        text_constant(graph_def, "name", str(tmp_path / "x"))
        with pytest.raises(UnsupportedError, match=f"odd: `{op}` has effects outside"):
            load_graph_def(graph_def, outputs=["odd"])


def test_ops_within_functions_are_refused(tmp_path):
    """A branch that depends on the input cannot be inlined, so its body is checked."""
    written = tmp_path / "written"

    def build():
        x = v1.placeholder("float32", (None, 3), "x")

        def writes():
            with tf.control_dependencies([tf.io.write_file(str(written), "x")]):
                return tf.identity(x)

        return tf.cond(tf.reduce_sum(x) > 0, writes, lambda: x * 2.0)

    v1.enable_control_flow_v2()
    try:
        graph_def = graph_def_of(build)
    finally:
        v1.disable_control_flow_v2()
    with pytest.raises(UnsupportedError, match="`WriteFile` has effects outside"):
        load_graph_def(graph_def)
    assert not written.exists()


@pytest.mark.parametrize(
    "op",
    ["WriteFile", "Print", "PrintV2", "SaveV2", "RestoreV2", "TextLineDataset", "IteratorGetNext",
     "ReaderReadV2", "RpcCall", "RemoteCall", "InitializeTableFromTextFileV2", "_Recv",
     "ImmutableConst", "Abort", "BatchFunction", "DebugIdentity", "XlaDot",
     "LoadAndRemapMatrix", "FileSystemSetConfiguration", "XlaCustomCallV2", "AssignVariableOp"],
)  # fmt: skip
def test_ops_that_are_not_harmless(op):
    assert not is_harmless(op)


@pytest.mark.parametrize(
    "op", ["Erf", "If", "RandomUniform", "TopKV2", "CudnnRNNV3", "LookupTableFindV2", "Unheard"]
)
def test_ops_that_only_compute(op):
    assert is_harmless(op)


# -- sizes past sense ----------------------------------------------------------------------------

LARGE = (10**6, 10**9, 2**31 - 1, 2**31, 2**62)


def onnx_of(op, constants, **attributes):
    x = helper.make_tensor_value_info("x", 1, (1, 1, 8, 8))
    y = helper.make_tensor_value_info("y", 1, None)
    node = helper.make_node(op, ["x", *constants], ["y"], **attributes)
    arrays = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items() if n]
    graph = helper.make_graph([node], "g", [x], [y], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


WEIGHTS = {"w": np.ones((1, 1, 3, 3), "float32")}
ODD = {
    "dilation": lambda v: onnx_of("Conv", WEIGHTS, dilations=[v, v]),
    "dilation and padding": lambda v: onnx_of("Conv", WEIGHTS, dilations=[v, v], pads=[v] * 4),
    "dilation of same padding": lambda v: onnx_of(
        "Conv", WEIGHTS, dilations=[v, v], auto_pad="SAME_UPPER"
    ),
    "padding": lambda v: onnx_of("Conv", WEIGHTS, pads=[v] * 4),
    "padding of a pool": lambda v: onnx_of(
        "AveragePool", {}, kernel_shape=[3, 3], pads=[v] * 4, count_include_pad=1
    ),
    "window": lambda v: onnx_of("MaxPool", {}, kernel_shape=[v, v], pads=[v - 1] * 4),
    "Pad": lambda v: onnx_of("Pad", {"p": np.array([0, 0, v, v, 0, 0, v, v])}),
    "Resize": lambda v: onnx_of(
        "Resize", {"": 0, "s": np.array([1, 1, v, v], "float32")}, mode="nearest"
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_sizes_past_sense_end_in_an_error(tmp_path, what):
    """Impossible sizes are refused quickly, because nothing of such a size is allocated."""
    for value in LARGE:
        model = ODD[what](value)
        onnx.save(model, tmp_path / "m.onnx")
        samples = np.zeros((2, 1, 8, 8), "float32")
        with pytest.raises(QGraphError):
            quantize(tmp_path / "m.onnx", samples, effort="plain")


def test_a_tensor_that_no_memory_holds_is_named(tmp_path):
    onnx.save(ODD["Pad"](10**6), tmp_path / "m.onnx")
    with pytest.raises(GraphError, match=r"y: pad: a tensor of 4,000,032,000,064 elements"):
        load(tmp_path / "m.onnx")
    onnx.save(ODD["dilation and padding"](10**6), tmp_path / "m.onnx")
    with pytest.raises(GraphError, match=r"padding .* makes an input of 4,000,032,000,064"):
        load(tmp_path / "m.onnx")
