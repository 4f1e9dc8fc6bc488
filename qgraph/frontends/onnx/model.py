"""ONNX files: parsed, checked, and read through onnx-graphsurgeon into nodes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from qgraph.errors import GraphError, LoadError, QGraphError, UnsupportedError
from qgraph.foreign import AttrValue, OnnxObject, Proto
from qgraph.frontends.grids import Grid
from qgraph.frontends.onnx.dequantized import dequantized
from qgraph.frontends.onnx.functions import inlined
from qgraph.frontends.onnx.node import INITIALIZER, INPUT, OnnxNode, ir_name
from qgraph.frontends.onnx.subgraphs import captured
from qgraph.frontends.onnx.tensors import dtype_name, narrow_types
from qgraph.frontends.site import Ref
from qgraph.ir.types import Shape, TensorType

MIN_OPSET = 7
DEFAULT_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True)
class Model:
    """A model as nodes by name, in file order, with its ends.

    Inputs and initializers are nodes too. `tensors` maps each tensor's name in the file to its
    producer, `inputs` and `outputs` list tensors; `types` are those that the file records.
    `folder` is the place of external data, `narrow` the float types narrower than float32 that the
    file has, which are read as float32. `notes` are other changes on reading. `grids` are the grids
    of constants that are kept, by node.
    """

    nodes: Mapping[str, OnnxNode]
    tensors: Mapping[str, Ref]
    types: Mapping[str, TensorType]
    inputs: Sequence[str]
    outputs: Sequence[str]
    opset: int
    folder: Path | None
    narrow: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    grids: Mapping[str, Grid] = field(default_factory=dict)


def parse(data: bytes) -> Proto | None:
    """`data` as an ONNX ModelProto, or None if it is something else, or damaged."""
    import onnx
    from google.protobuf.message import DecodeError

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        return None
    return proto if proto.ir_version > 0 and proto.HasField("graph") else None


def read(proto: Proto, folder: Path | None = None, keep_scales: bool = False) -> Model:
    """A parsed model as nodes.

    keep_scales: whether quantizers whose scales are powers of two stay (`dequantized`).
    Raises LoadError for an invalid model, UnsupportedError for an opset out of range.
    """
    opset = _opset(proto)
    try:
        found = dequantized(_without_functions(proto), folder, keep_scales)
        graph = through_graphsurgeon(found.proto)
        model = _ModelReader(graph, opset, _domains(found.proto), folder).model()
        grids = {model.tensors[t][0]: g for t, g in found.grids.items() if t in model.tensors}
        narrow = narrow_types(found.proto)
        return replace(model, narrow=narrow, notes=found.notes, grids=grids)
    except QGraphError:
        raise
    except Exception as error:  # readers may raise anything on a damaged model
        lines = str(error).splitlines() or [type(error).__name__]
        raise LoadError(
            f"not a valid ONNX model: {lines[0]}", hint="onnx.checker.check_model may give details"
        ) from None


def _domains(proto: Proto) -> dict[str, int]:
    return {entry.domain: int(entry.version) for entry in proto.opset_import}


def _opset(proto: Proto) -> int:
    import onnx

    domains = _domains(proto)
    found = next((domains[d] for d in DEFAULT_DOMAINS if d in domains), 0)
    newest = onnx.defs.onnx_opset_version()
    if not MIN_OPSET <= found <= newest:
        version = f"opset {found}" if found else "no opset of the default domain"
        raise UnsupportedError(
            f"the model has {version}; {MIN_OPSET} to {newest} are supported",
            hint="convert it: onnx.version_converter.convert_version(model, 17)",
        )
    return found


def _without_functions(proto: Proto) -> Proto:
    """The model with calls of its own functions inlined."""
    return inlined(proto) if proto.functions else proto


def through_graphsurgeon(proto: Proto) -> Proto:
    """The model as an onnx-graphsurgeon graph."""
    import onnx_graphsurgeon as gs

    if proto.graph.sparse_initializer:
        raise UnsupportedError("the model has sparse constants", hint="make them dense")
    with _quiet():
        return gs.import_onnx(proto)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the messages of graphsurgeon; errors here report what matters."""
    from onnx_graphsurgeon.logger import G_LOGGER

    before = G_LOGGER.severity
    G_LOGGER.severity = logging.CRITICAL
    try:
        yield
    finally:
        G_LOGGER.severity = before


class _ModelReader:
    """Reads graphsurgeon's graph, whose tensors are identified by name."""

    def __init__(self, graph: OnnxObject, opset: int, domains: dict[str, int], folder: Path | None):
        self.graph, self.opset, self.domains, self.folder = graph, opset, domains, folder
        self.nodes: dict[str, OnnxNode] = {}
        self.tensors: dict[str, Ref] = {}
        self.types: dict[str, TensorType] = {}
        self.slots: dict[str, tuple[str, ...]] = {}
        self.taken: set[str] = set()

    def model(self) -> Model:
        for tensor in self.graph.inputs:
            self._add(INPUT, (tensor.name,), {"type": self._type(tensor)})
        known = {t.name: t for t in (*self.graph.tensors().values(), *self.graph.outputs)}
        for tensor in known.values():
            if hasattr(tensor, "_values"):
                self._add(INITIALIZER, (tensor.name,), {"value": tensor})
            elif tensor.dtype is not None:
                self.types[tensor.name] = self._type(tensor)
        for index, node in enumerate(self.graph.nodes):
            self._add_node(node, index)
        for name, slots in self.slots.items():
            refs = tuple(self._ref(t, name) if t else None for t in slots)
            outer = {t: self._ref(t, name) for t in captured(self.nodes[name].attrs)}
            self.nodes[name] = replace(self.nodes[name], slots=refs, captures=outer)
        inputs = [t.name for t in self.graph.inputs]
        outputs = list(dict.fromkeys(t.name for t in self.graph.outputs))
        return Model(self.nodes, self.tensors, self.types, inputs, outputs, self.opset, self.folder)

    def _add_node(self, node: OnnxObject, index: int) -> None:
        domain = node.domain or ""
        version = self.opset if domain in DEFAULT_DOMAINS else self.domains.get(domain, 1)
        outputs = tuple(t.name for t in node.outputs)
        label = node.name or f"{node.op} number {index}"
        if not node.op:
            raise LoadError("a node without an op", node=label)
        if any(outputs):
            slots = tuple(t.name for t in node.inputs)
            self._add(node.op, outputs, node.attrs, domain, version, slots, label)

    def _add(
        self,
        op: str,
        tensors: tuple[str, ...],
        attrs: Mapping[str, AttrValue],
        domain: str = "",
        version: int = 0,
        slots: tuple[str, ...] = (),
        label: str = "",
    ) -> None:
        names = tuple(self._free(t) if t else "" for t in tensors)
        name = next((n for n in names if n), "")
        if not name:
            raise LoadError("an input without a name")
        for index, tensor in enumerate(tensors):
            if tensor in self.tensors:
                raise GraphError("two nodes produce this tensor", node=tensor)
            if tensor:
                self.tensors[tensor] = (name, index)
        self.nodes[name] = OnnxNode(name, op, domain, version, (), names, attrs, label)
        self.slots[name] = slots

    def _ref(self, tensor: str, user: str) -> Ref:
        if tensor not in self.tensors:
            raise GraphError(
                f"input `{tensor}` does not exist", node=user, hint="the graph is damaged"
            )
        return self.tensors[tensor]

    def _free(self, tensor: str) -> str:
        stem = name = ir_name(tensor)
        count = 0
        while name in self.taken:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name

    def _type(self, tensor: OnnxObject) -> TensorType:
        if getattr(tensor, "type", "tensor_type") not in ("tensor_type", None):
            raise UnsupportedError(f"a {tensor.type}: only tensors are supported", node=tensor.name)
        if tensor.dtype is None:
            raise LoadError("an input without a type", node=tensor.name)
        return TensorType(dtype_name(tensor.dtype, tensor.name), _shape(tensor.shape))


def _shape(dims: OnnxObject) -> Shape | None:
    """Symbolic dimensions, and those below 1 that some exporters write, are unknown."""
    if dims is None:
        return None
    return tuple(d if isinstance(d, int) and d > 0 else None for d in dims)
