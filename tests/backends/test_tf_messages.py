"""Written GraphDefs and SavedModels are TensorFlow's to the byte, and load there."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.descriptor_pb2 import DescriptorProto
from tensorflow.core.framework import (
    attr_value_pb2,
    function_pb2,
    graph_pb2,
    node_def_pb2,
    op_def_pb2,
    tensor_pb2,
    tensor_shape_pb2,
    versions_pb2,
)
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from qgraph import load, quantize
from qgraph.backends.tf.builder import NUMBERS, Dims, DType, GraphDefBuilder
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.messages import MESSAGES, new_message
from qgraph.backends.tf.saved_model import write_saved_model
from qgraph.backends.tf.tensorflow_form import TensorFlowForm
from qgraph.errors import ExactnessError, LoadError
from qgraph.exports import export
from qgraph.stored import load_network
from tests.helpers.cli import small_network, typical_images
from tests.helpers.tf_graphs import graph_def_of, v1

THEIRS = {
    "GraphDef": graph_pb2.GraphDef,
    "VersionDef": versions_pb2.VersionDef,
    "NodeDef": node_def_pb2.NodeDef,
    "AttrValue": attr_value_pb2.AttrValue,
    "ListValue": attr_value_pb2.AttrValue.ListValue,
    "NameAttrList": attr_value_pb2.NameAttrList,
    "TensorShapeProto": tensor_shape_pb2.TensorShapeProto,
    "Dim": tensor_shape_pb2.TensorShapeProto.Dim,
    "TensorProto": tensor_pb2.TensorProto,
    "FunctionDefLibrary": function_pb2.FunctionDefLibrary,
    "FunctionDef": function_pb2.FunctionDef,
    "OpDef": op_def_pb2.OpDef,
    "SavedModel": saved_model_pb2.SavedModel,
    "MetaGraphDef": meta_graph_pb2.MetaGraphDef,
    "MetaInfoDef": meta_graph_pb2.MetaGraphDef.MetaInfoDef,
    "SignatureDef": meta_graph_pb2.SignatureDef,
    "TensorInfo": meta_graph_pb2.TensorInfo,
}


def test_each_message_is_compared() -> None:
    assert THEIRS.keys() == MESSAGES.keys()


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_are_those_of_tensorflow(name) -> None:
    ours, theirs = described(new_message(name)), described(THEIRS[name]())
    for field, here in ours.items():
        there = theirs[field]
        enum_too = {here.TYPE_INT32: (here.TYPE_INT32, here.TYPE_ENUM)}
        assert there.type in enum_too.get(here.type, (here.type,)), field
        assert (here.number, here.label) == (there.number, there.label), field
        assert here.HasField("oneof_index") == there.HasField("oneof_index"), field
        if here.type_name:
            assert here.type_name.split(".")[-1] == there.type_name.split(".")[-1], field


def described(message):
    """The descriptions of a message's fields, by name."""
    found = DescriptorProto()
    message.DESCRIPTOR.CopyToProto(found)
    return {field.name: field for field in found.field}


def test_types_have_the_numbers_of_tensorflow() -> None:
    for name, number in NUMBERS.items():
        if name not in ("resource", "variant"):
            assert tf.as_dtype(name).as_datatype_enum == number


def both_serialized(graph_def) -> tuple[bytes, bytes]:
    """The bytes that qgraph writes, and those that TensorFlow writes for the same message."""
    ours = graph_def.SerializeToString(deterministic=True)
    theirs = graph_pb2.GraphDef.FromString(ours)
    return ours, theirs.SerializeToString(deterministic=True)


def test_attributes_of_all_kinds() -> None:
    builder = GraphDefBuilder()
    builder.add(
        "Op", "of", ["x"], a=0, b=False, c=0.0, d="", e=(), f=(1, -2), g=DType("bool"),
        h=Dims(None), i=Dims((None, 3)), j=Dims(()), k=-1, l=1.5, m="text",
    )  # fmt: skip
    for dtype in ("float32", "int64", "bool", "float16", "uint8"):
        builder.const(np.ones((2, 0, 3), dtype), dtype)
        builder.const(np.ones((), dtype), dtype)
    ours, theirs = both_serialized(builder.graph_def)
    assert ours == theirs
    attr = graph_pb2.GraphDef.FromString(ours).node[0].attr
    assert attr["b"].WhichOneof("value") == "b" and attr["a"].WhichOneof("value") == "i"
    assert attr["e"].WhichOneof("value") == "list" and attr["i"].shape.dim[0].size == -1


def with_function():
    """A GraphDef with an op that is not supported and calls a function."""
    square = tf.function(lambda x: tf.math.cumsum(x * x, axis=1)).get_concrete_function(
        tf.TensorSpec((None, 4), tf.float32)
    )

    def build():
        image = v1.placeholder("float32", (None, 4), "image")
        return tf.identity(square(image), name="y")

    return graph_def_of(build)


@pytest.mark.parametrize("made", [small_network, with_function])
def test_networks_are_written_to_the_same_bytes(made, tmp_path) -> None:
    (tmp_path / "net.pb").write_bytes(made().SerializeToString())
    ours, theirs = both_serialized(emit_graph_def(load(tmp_path / "net.pb")))
    assert ours == theirs


def test_a_saved_model_gives_what_the_graph_gives(tmp_path) -> None:
    (tmp_path / "net.pb").write_bytes(small_network().SerializeToString())
    images = typical_images()
    out = quantize(tmp_path / "net.pb", images, effort="plain").save(tmp_path / "out")
    with tf.Graph().as_default(), v1.Session() as session:
        frozen = graph_pb2.GraphDef.FromString((out / "inference.pb").read_bytes())
        tf.import_graph_def(frozen, name="")
        (wanted,) = session.run(["classes:0"], {"image:0": images})
    export(out, "tensorflow", tmp_path / "made")
    saved = tmp_path / "made/saved_model"
    signature = tf.saved_model.load(str(saved)).signatures["serving_default"]
    assert signature.structured_input_signature[1]["image"].shape.as_list() == [None, 8, 8, 3]
    np.testing.assert_array_equal(signature(image=tf.constant(images))["classes"], wanted)
    with tf.Graph().as_default(), v1.Session() as session:
        meta = v1.saved_model.load(session, ["serve"], str(saved))
        names = meta.signature_def["serving_default"]
        (found,) = session.run(
            [names.outputs["classes"].name], {names.inputs["image"].name: images}
        )
    np.testing.assert_array_equal(found, wanted)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved))
    assert len(converter.convert()) > 1000
    assert load(saved).inputs == ["image"]


def test_a_saved_model_that_cannot_be_written_is_an_os_error(tmp_path) -> None:
    (tmp_path / "net.pb").write_bytes(small_network().SerializeToString())
    graph = load(tmp_path / "net.pb")
    with pytest.raises(OSError, match="No such file"):
        write_saved_model(emit_graph_def(graph), graph, tmp_path / "no/where")


def test_a_saved_model_with_another_graph_is_a_fault(tmp_path) -> None:
    (tmp_path / "net.pb").write_bytes(small_network().SerializeToString())
    out = quantize(tmp_path / "net.pb", typical_images(), effort="plain").save(tmp_path / "out")
    export(out, "tensorflow", tmp_path / "made")
    form, network = TensorFlowForm(), load_network(out)
    form.check(network, tmp_path / "made")
    path = tmp_path / "made/saved_model/saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    weights = next(n for n in model.meta_graphs[0].graph_def.node if n.op == "Const")
    weights.attr["value"].tensor.tensor_content = b"\x01" + bytes(
        weights.attr["value"].tensor.tensor_content[1:]
    )
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ExactnessError, match=r"saved_model: its graph differs"):
        form.check(network, tmp_path / "made")
    path.write_bytes(b"\xff" * 9)
    with pytest.raises(LoadError, match="was changed or damaged"):
        form.check(network, tmp_path / "made")
    path.unlink()  # as in exports of earlier versions
    form.check(network, tmp_path / "made")
