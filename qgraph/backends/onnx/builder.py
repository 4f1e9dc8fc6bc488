"""Build an ONNX model: nodes in order, each constant once, unique names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from qgraph.errors import UnsupportedError
from qgraph.files import write_whole
from qgraph.foreign import AttrValue
from qgraph.names import Namespace, onnx_name

MAX_BYTES = (1 << 31) - 1  # bytes of a protobuf message
Sizes = Sequence[int | str | None] | None  # sizes of a value; None if the rank is unknown


class OnnxModelBuilder:
    """Nodes, constants, inputs and outputs of one model."""

    def __init__(self, name: str, opset: int, reserved: Sequence[str] = ()) -> None:
        self.name, self.opset = name, opset
        self.domains: dict[str, int] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.known: list[onnx.ValueInfoProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initializers: list[onnx.TensorProto] = []
        self._names = Namespace(onnx_name, taken=reserved)

    def fresh(self, stem: str) -> str:
        """An unused value name: the stem, or the stem with a number."""
        return self._names.fresh(stem)

    def add(
        self, op: str, inputs: Sequence[str], stem: str, *, domain: str = "", **attrs: AttrValue
    ) -> str:
        """Add a node with one output, named after the stem; returns the name of the output."""
        output = self.fresh(stem)
        self.append(op, inputs, output, domain=domain, **attrs)
        return output

    def append(
        self, op: str, inputs: Sequence[str], output: str, *, domain: str = "", **attrs: AttrValue
    ) -> None:
        """Add a node whose output has exactly this name."""
        self.nodes.append(
            helper.make_node(op, inputs, [output], name=output, domain=domain, **attrs)
        )

    def constant(self, value: npt.ArrayLike, stem: str, *, own: bool = False) -> str:
        """Add an initializer. Equal ones are stored once, unless `own` is true."""
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        if own:
            return self.raw_constant(numpy_helper.from_array(array, stem))
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = self.fresh(stem)
            self._initializers.append(numpy_helper.from_array(array, self.constants[key]))
        return self.constants[key]

    def raw_constant(self, tensor: onnx.TensorProto) -> str:
        """Add an initializer under a fresh name."""
        tensor.name = self.fresh(tensor.name)
        self._initializers.append(tensor)
        return str(tensor.name)

    def adopt(self, initializers: Iterable[onnx.TensorProto]) -> None:
        """Add the initializers of another model, whose names were reserved."""
        self._initializers.extend(initializers)

    def input(self, name: str, dtype: str, shape: Sizes) -> None:
        self.inputs.append(value_info(name, dtype, shape))

    def output(self, name: str, dtype: str, shape: Sizes) -> None:
        self.outputs.append(value_info(name, dtype, shape))

    def know(self, name: str, dtype: str, shape: Sequence[int | str]) -> None:
        """Declare the result type of an op that ONNX does not define."""
        self.known.append(value_info(name, dtype, shape))

    def model(self, metadata: Mapping[str, object]) -> onnx.ModelProto:
        """The checked model. Raises UnsupportedError if it is too large for a file."""
        graph = helper.make_graph(
            self.nodes,
            self.name,
            self.inputs,
            self.outputs,
            self._initializers,
            value_info=self.known,
        )
        opsets = {"": self.opset, **self.domains}
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()],
            ir_version=_ir_version(self.opset),
            producer_name="qgraph",
        )
        helper.set_model_props(model, {"qgraph": json.dumps(metadata, sort_keys=True)})
        if model.ByteSize() > MAX_BYTES:
            raise UnsupportedError(
                f"its constants take {model.ByteSize():,} bytes; "
                f"the limit of ONNX is {MAX_BYTES:,}",
                node=self.name,
            )
        onnx.checker.check_model(model, full_check=True)
        return model


def with_older_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model with this opset of ONNX's own domain, if it has the same ops in the same versions;
    otherwise the model unchanged.
    """
    (own,) = (one for one in model.opset_import if not one.domain)
    ops = {node.op_type for node in model.graph.node if not node.domain}
    if all(onnx.defs.get_schema(op, own.version).since_version <= opset for op in ops):
        own.version = min(own.version, opset)
        onnx.checker.check_model(model, full_check=True)
    return model


def _ir_version(opset: int) -> int:
    """The IR version that was current with an opset, so that older runtimes read the file."""
    return int(helper.find_min_ir_version_for([helper.make_opsetid("", opset)]))


def value_info(name: str, dtype: str, shape: Sizes) -> onnx.ValueInfoProto:
    sizes = None if shape is None else list(shape)
    return helper.make_tensor_value_info(name, element_type(dtype), sizes)


def element_type(dtype: str) -> int:
    """ONNX's number for a numpy type name."""
    return int(TensorProto.DataType.Value(_ONNX_NAMES.get(dtype, dtype.upper())))


_ONNX_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a model; equal models give equal bytes."""
    write_whole(path, model.SerializeToString(deterministic=True))


def metadata_of(model: onnx.ModelProto) -> dict[str, AttrValue]:
    """Metadata of qgraph about entries, exits and inner tensors."""
    return next(json.loads(p.value) for p in model.metadata_props if p.key == "qgraph")
