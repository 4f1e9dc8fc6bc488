"""TensorFlow's messages GraphDef and SavedModel, to write them without TensorFlow.

The field numbers are those of `tensorflow/core/framework/graph.proto` and
`tensorflow/core/protobuf/saved_model.proto`. Fields that are not set here are left out: protobuf
keeps them when it reads a message. The messages have their own pool, separate from TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from qgraph.foreign import Proto

PRODUCER = 2474  # the GraphDef version of TensorFlow 2.21; older ones read it too

# Fields by message: number and type. The prefix `*` means repeated, `?` one of a choice, and the
# suffix `{}` a map from text.
MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "GraphDef": {
            "node": (1, "*NodeDef"),
            "library": (2, "FunctionDefLibrary"),
            "versions": (4, "VersionDef"),
        },
        "VersionDef": {"producer": (1, "int32"), "min_consumer": (2, "int32")},
        "NodeDef": {
            "name": (1, "string"),
            "op": (2, "string"),
            "input": (3, "*string"),
            "device": (4, "string"),
            "attr": (5, "AttrValue{}"),
        },
        "AttrValue": {
            "list": (1, "?ListValue"),
            "s": (2, "?bytes"),
            "i": (3, "?int64"),
            "f": (4, "?float"),
            "b": (5, "?bool"),
            "type": (6, "?int32"),
            "shape": (7, "?TensorShapeProto"),
            "tensor": (8, "?TensorProto"),
            "placeholder": (9, "?string"),
            "func": (10, "?NameAttrList"),
        },
        "ListValue": {
            "s": (2, "*bytes"),
            "i": (3, "*int64"),
            "f": (4, "*float"),
            "b": (5, "*bool"),
            "type": (6, "*int32"),
            "shape": (7, "*TensorShapeProto"),
            "tensor": (8, "*TensorProto"),
            "func": (9, "*NameAttrList"),
        },
        "NameAttrList": {"name": (1, "string"), "attr": (2, "AttrValue{}")},
        "TensorShapeProto": {"dim": (2, "*Dim"), "unknown_rank": (3, "bool")},
        "Dim": {"size": (1, "int64"), "name": (2, "string")},
        "TensorProto": {
            "dtype": (1, "int32"),
            "tensor_shape": (2, "TensorShapeProto"),
            "tensor_content": (4, "bytes"),
        },
        "FunctionDefLibrary": {"function": (1, "*FunctionDef")},
        "FunctionDef": {"signature": (1, "OpDef")},
        "OpDef": {"name": (1, "string")},
        "SavedModel": {
            "saved_model_schema_version": (1, "int64"),
            "meta_graphs": (2, "*MetaGraphDef"),
        },
        "MetaGraphDef": {
            "meta_info_def": (1, "MetaInfoDef"),
            "graph_def": (2, "GraphDef"),
            "signature_def": (5, "SignatureDef{}"),
        },
        "MetaInfoDef": {"tags": (4, "*string"), "tensorflow_version": (5, "string")},
        "SignatureDef": {
            "inputs": (1, "TensorInfo{}"),
            "outputs": (2, "TensorInfo{}"),
            "method_name": (3, "string"),
        },
        "TensorInfo": {
            "name": (1, "?string"),
            "dtype": (2, "int32"),
            "tensor_shape": (3, "TensorShapeProto"),
        },
    }
)


def new_message(name: str) -> Proto:
    """An empty message of this name."""
    return _classes()[name]()


@cache
def _classes() -> Mapping[str, Proto]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    package = "qgraph.tensorflow"
    file = descriptor_pb2.FileDescriptorProto(
        name="qgraph/tensorflow.proto", package=package, syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message, f".{package}.", name, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in MESSAGES
    }


def _add_field(message: Proto, scope: str, owner: str, name: str, number: int, kind: str) -> None:
    """Add a field to a message's description; a map is a list of entries, as in protobuf."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    plain = kind.strip("*?{}")
    repeated, mapped = kind.startswith("*"), kind.endswith("{}")
    field = message.field.add(name=name, number=number, json_name=name)
    field.label = FieldDescriptorProto.LABEL_OPTIONAL
    if repeated or mapped:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if kind.startswith("?"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="value")
        field.oneof_index = 0
    if mapped:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, scope, owner, "key", 1, "string")
        _add_field(entry, scope, owner, "value", 2, plain)
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f"{scope}{owner}.{entry.name}"
    elif plain in MESSAGES:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, scope + plain
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{plain.upper()}")
