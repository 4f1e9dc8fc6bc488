"""Build a `.tflite` model: tensors, buffers, operators, a signature and metadata."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from qgraph.archives import JsonObject
from qgraph.backends.tflite.flat_tables import FieldValue, FlatTable, serialized
from qgraph.ir.types import Array, Exponent
from qgraph.names import Namespace, onnx_name
from qgraph.tflite_schema import METADATA, schema

SCHEMA_VERSION = 3
SIGNATURE = "serving_default"
# Codes of builtin ops that fit the field of old readers.
OLD_CODES = 127


class QuantizedScale(NamedTuple):
    """Quantization of a tensor: `value = (stored - zero) * 2^-exponent`.

    Exponents may differ along `axis`.
    """

    exponent: Exponent
    zero: int = 0
    axis: int = 0


class TfliteModelBuilder:
    """Collects tensors and operators; tensors are numbered from 0 in the order of creation."""

    def __init__(self, name: str, taken: Collection[str] = ()) -> None:
        self.name = name
        self.schema = schema()
        self.names = Namespace(onnx_name, taken)
        self.inputs: dict[str, int] = {}
        self.outputs: dict[str, int] = {}
        self._tensors: list[FlatTable] = []
        self._buffers: list[bytes] = [b""]
        self._operators: list[FlatTable] = []
        self._codes: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[str, bytes, tuple[int, ...], QuantizedScale | None], int] = {}

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        scale: QuantizedScale | None = None,
        data: bytes | None = None,
        own: bool = False,
    ) -> int:
        """Add a tensor; returns its number. own: the name is already unique."""
        buffer = 0
        if data is not None:
            self._buffers.append(data)
            buffer = len(self._buffers) - 1
        fields: dict[str, FieldValue] = {
            "Shape": np.asarray(shape, np.int32),
            "Type": self.enum("TensorType", dtype.upper()),
            "Buffer": buffer,
            "Name": name if own else self.names.fresh(name),
            "HasRank": True,
        }
        if scale is not None:
            exponents = np.atleast_1d(np.asarray(scale.exponent, np.int64))
            fields["Quantization"] = FlatTable(
                "QuantizationParameters",
                {
                    "Scale": np.ldexp(np.float32(1), -exponents).astype(np.float32),
                    "ZeroPoint": np.full(exponents.size, scale.zero, np.int64),
                    "QuantizedDimension": scale.axis,
                },
            )
        self._tensors.append(FlatTable("Tensor", fields))
        return len(self._tensors) - 1

    def constant(self, name: str, array: Array, scale: QuantizedScale | None = None) -> int:
        """Add a constant, or return the number of an equal one."""
        array = np.ascontiguousarray(array)
        key = (array.dtype.name, array.tobytes(), array.shape, scale)
        if key not in self._known:
            little = array.astype(array.dtype.newbyteorder("<"))
            self._known[key] = self.tensor(
                name, array.shape, array.dtype.name, scale, little.tobytes()
            )
        return self._known[key]

    def operator(
        self,
        op: str,
        inputs: Sequence[int],
        output: int,
        options: str | None = None,
        version: int = 1,
        **fields: FieldValue,
    ) -> int:
        """Add an operator of one output, which is returned. options: kind of its options."""
        held: dict[str, FieldValue] = {
            "OpcodeIndex": self._code(op, version),
            "Inputs": np.asarray(inputs, np.int32),
            "Outputs": np.asarray([output], np.int32),
        }
        if options is not None:
            held["BuiltinOptionsType"] = self.enum("BuiltinOptions", options)
            held["BuiltinOptions"] = FlatTable(options, fields)
        self._operators.append(FlatTable("Operator", held))
        return output

    def rename(self, index: int, name: str) -> None:
        """Give a tensor a name that is already unique."""
        tensor = self._tensors[index]
        self._tensors[index] = replace(tensor, fields={**tensor.fields, "Name": name})

    def name_of(self, index: int) -> str:
        return str(self._tensors[index].fields["Name"])

    def enum(self, kind: str, member: str) -> int:
        value: int = getattr(getattr(self.schema, kind), member)
        return value

    def _code(self, op: str, version: int) -> int:
        key = (self.enum("BuiltinOperator", op), version)
        return self._codes.setdefault(key, len(self._codes))

    def model(self, meta: JsonObject) -> bytes:
        """The file. meta: JSON that is stored as the metadata `qgraph`."""
        self._buffers.append(json.dumps(meta).encode())
        codes = [
            FlatTable(
                "OperatorCode",
                {
                    "DeprecatedBuiltinCode": min(code, OLD_CODES),
                    "BuiltinCode": code,
                    "Version": version,
                },
            )
            for code, version in self._codes
        ]
        graph = FlatTable(
            "SubGraph",
            {
                "Tensors": self._tensors,
                "Inputs": np.asarray([*self.inputs.values()], np.int32),
                "Outputs": np.asarray([*self.outputs.values()], np.int32),
                "Operators": self._operators,
                "Name": onnx_name(self.name),
            },
        )
        signature = FlatTable(
            "SignatureDef",
            {
                "Inputs": _named(self.inputs),
                "Outputs": _named(self.outputs),
                "SignatureKey": SIGNATURE,
            },
        )
        buffers = [FlatTable("Buffer", {"Data": data} if data else {}) for data in self._buffers]
        metadata = FlatTable("Metadata", {"Name": METADATA, "Buffer": len(buffers) - 1})
        return serialized(
            FlatTable(
                "Model",
                {
                    "Version": SCHEMA_VERSION,
                    "OperatorCodes": codes,
                    "Subgraphs": [graph],
                    "Description": "written by qgraph",
                    "Buffers": buffers,
                    "Metadata": [metadata],
                    "SignatureDefs": [signature],
                },
            )
        )


def _named(ends: Mapping[str, int]) -> list[FlatTable]:
    return [
        FlatTable("TensorMap", {"Name": name, "TensorIndex": index}) for name, index in ends.items()
    ]


def metadata_of(data: bytes) -> JsonObject:
    """The JSON that `TfliteModelBuilder.model` stored; empty for other files."""
    model = schema().Model.GetRootAsModel(data, 0)
    for i in range(model.MetadataLength()):
        if model.Metadata(i).Name() == METADATA.encode():
            held = model.Buffers(model.Metadata(i).Buffer()).DataAsNumpy()
            found: JsonObject = json.loads(held.tobytes())
            return found
    return {}
