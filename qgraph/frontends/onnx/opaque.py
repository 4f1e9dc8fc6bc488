"""Unknown ops: their types and values come from ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from qgraph.errors import GraphError, LoadError, QGraphError, UnsupportedError
from qgraph.foreign import OnnxObject, Proto
from qgraph.frontends.onnx.model import parse
from qgraph.frontends.onnx.node import OnnxNode
from qgraph.frontends.onnx.opsets import in_newest_opset
from qgraph.frontends.partial import Partial, small_constants
from qgraph.ir.types import Array, Shape, TensorType

RANDOM = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
)  # fmt: skip
CONTROL_FLOW = "control flow"
UNROLL_HINT = "export the model with its loops unrolled and its conditions constant"
REFUSED = {
    **dict.fromkeys(("If", "Loop", "Scan", "SequenceMap"), CONTROL_FLOW),
    **dict.fromkeys(RANDOM, "an op that draws random numbers"),
    **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), "an optional"),
    "StringNormalizer": "an op on text",
    "ImageDecoder": "an op on files",
}
EXCLUDE_HINT = "exclude it: choose inputs and outputs that do not need it"
TYPE_ATTRS = (
    "to", "dtype", "output_dtype", "output_datatype", "precision", "stash_type",
    "softmax_precision",
)  # fmt: skip
Decoded = Callable[[Proto, str], Array]


@dataclass(frozen=True)
class OnnxSource:
    """An ONNX op that can be run alone: a model of one node, serialized."""

    node: str
    model: bytes
    inputs: tuple[TensorType, ...]

    pure: ClassVar[bool] = True  # others (random numbers, files) are refused on import

    def types(
        self, inputs: Sequence[TensorType], constants: Sequence[Array | None]
    ) -> tuple[TensorType, ...]:
        """Output types for inputs of these types; `constants` has the known values."""
        model = parsed(self.model)
        for feed, kind in zip(model.graph.input, inputs, strict=True):
            feed.CopyFrom(_info(feed.name, kind.dtype, kind.shape))
        made = replace(self, model=model.SerializeToString(), inputs=tuple(inputs))
        return infer_types(made, small_constants(constants))

    def to_bytes(self) -> bytes:
        """The op as a model of one node."""
        return self.model

    @classmethod
    def from_bytes(cls, data: bytes, node: str) -> OnnxSource:
        """Read what `to_bytes` wrote. Raises LoadError."""
        model = parse(data)
        if model is None or len(model.graph.node) != 1:
            raise LoadError("the op is not an ONNX model of one node", node=node)
        inputs = tuple(_inferred(feed, node, model) for feed in model.graph.input)
        return cls(node, data, inputs)

    def run(self, inputs: Sequence[Array]) -> Array | tuple[Array, ...]:
        """The op's outputs by ONNX's reference: an array, or a tuple where there are several."""
        feeds = {f"in{i}": np.asarray(value) for i, value in enumerate(inputs)}
        try:
            results = self._evaluator.run(None, feeds)
        except QGraphError:
            raise
        except Exception as error:  # the reference of an op may raise anything
            lines = str(error).splitlines() or [type(error).__name__]
            raise GraphError(f"ONNX's reference fails: {lines[0]}", node=self.node) from None
        arrays = tuple(np.asarray(r) for r in results)
        return arrays[0] if len(arrays) == 1 else arrays

    @cached_property
    def _evaluator(self) -> OnnxObject:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(in_newest_opset(parsed(self.model), self.node))


def source_of(
    node: OnnxNode, values: Sequence[str], types: Sequence[TensorType], decoded: Decoded
) -> OnnxSource:
    """The source of a node. `values` are its inputs, "" if omitted; `types` those of the others.

    Raises UnsupportedError for an op that is unknown, or cannot be run alone.
    """
    import onnx
    from onnx import helper

    single = onnx.defs.OpSchema.FormalParameterOption.Single
    always = {i for i, kind in enumerate(_schema(node).outputs) if kind.option == single}
    count = iter(range(len(types)))
    inputs = [f"in{next(count)}" if value else "" for value in values]
    outputs = [f"out{i}" if name or i in always else "" for i, name in enumerate(node.outputs)]
    attrs = {
        key: _element_type(key, _attribute(value, node.name, decoded))
        for key, value in node.attrs.items()
    }
    made = helper.make_node(node.op, inputs, outputs, domain=node.domain, **attrs)
    feeds = [_info(f"in{i}", t.dtype, t.shape) for i, t in enumerate(types)]
    used = zip(outputs, node.outputs, strict=True)
    results = [helper.make_empty_tensor_value_info(o) for o, name in used if name]
    graph = helper.make_graph([made], "op", feeds, results)
    opsets = [helper.make_opsetid(node.domain, node.version)]
    version = onnx.helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=version)
    return OnnxSource(node.name, model.SerializeToString(deterministic=True), tuple(types))


def _schema(node: OnnxNode) -> Proto:
    """ONNX's definition of the op. Raises UnsupportedError for an op that cannot be run alone."""
    import onnx

    domain = "" if node.domain == "ai.onnx" else node.domain
    if not onnx.defs.has(node.op, domain):
        where = f" of `{domain}`" if domain else ""
        raise UnsupportedError(f"unknown op `{node.op}`{where}", node=node.name, hint=EXCLUDE_HINT)
    try:
        schema = onnx.defs.get_schema(node.op, node.version, domain)
    except onnx.defs.SchemaError:
        wrong = f"op `{node.op}` is not in opset {node.version}"
        raise UnsupportedError(wrong, node=node.name, hint=EXCLUDE_HINT) from None
    kinds = [*schema.inputs, *schema.outputs]
    types = [t for kind in kinds for t in kind.types]
    what = REFUSED.get(node.op)
    if what is None and any(t.startswith("seq(") for t in types) and not _tensors(kinds):
        what = "an op on sequences"
    if what is not None:
        hint = f"{UNROLL_HINT}; or {EXCLUDE_HINT}" if what == CONTROL_FLOW else EXCLUDE_HINT
        raise UnsupportedError(
            f"`{node.op}`{_label(node)} is {what}, not supported", node=node.name, hint=hint
        )
    return schema


def _label(node: OnnxNode) -> str:
    """The node's name in the file, if it differs from the name of its result."""
    given = node.label and not node.label.startswith(f"{node.op} number ")
    return f" (`{node.label}`)" if given and node.label != node.name else ""


def _tensors(kinds: Sequence[Proto]) -> bool:
    """Whether every input and output may be a tensor."""
    return all(any(t.startswith("tensor(") for t in kind.types) for kind in kinds)


def infer_types(source: OnnxSource, known: Sequence[Partial | None]) -> tuple[TensorType, ...]:
    """Output types by ONNX's shape inference, given known values of inputs."""
    import onnx

    model = parsed(source.model)
    for i, partial in enumerate(known):
        if partial is not None and partial.complete and partial.values.dtype.kind in "biuf":
            model.graph.initializer.append(onnx.numpy_helper.from_array(partial.values, f"in{i}"))
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    except Exception as error:  # ONNX may raise anything on a malformed node
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise GraphError(
            f"ONNX refuses it: {(lines or [type(error).__name__])[-1]}", node=source.node
        ) from None
    return tuple(_inferred(output, source.node, model) for output in inferred.graph.output)


def _inferred(output: Proto, node: str, model: Proto) -> TensorType:
    from qgraph.frontends.onnx.tensors import dtype_name

    kind = output.type.tensor_type
    if not kind.elem_type:
        op = model.graph.node[0].op_type
        raise UnsupportedError(
            f"the type of `{op}` cannot be determined", node=node, hint=EXCLUDE_HINT
        )
    if not kind.HasField("shape"):
        return TensorType(dtype_name(kind.elem_type, node), None)
    dims = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
    return TensorType(dtype_name(kind.elem_type, node), dims)


def parsed(model: bytes) -> Proto:
    import onnx

    return onnx.load_model_from_string(model)


def _info(name: str, dtype: str, shape: Shape | None) -> Proto:
    from onnx import TensorProto, helper

    kind = TensorProto.STRING
    if dtype != "string":
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, shape)


def _element_type(key: str, value: object) -> Proto:
    """`value`; where attribute `key` names an element type, the type used here."""
    import onnx

    narrow = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    return int(onnx.TensorProto.FLOAT) if key in TYPE_ATTRS and value in narrow else value


def _attribute(value: object, node: str, decoded: Decoded) -> Proto:
    import onnx

    if hasattr(value, "nodes"):
        raise UnsupportedError(
            "ops with graphs inside are not supported", node=node, hint=EXCLUDE_HINT
        )
    if hasattr(value, "_values"):
        return onnx.numpy_helper.from_array(decoded(value, node))
    return value
