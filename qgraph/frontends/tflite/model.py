"""The subgraphs of a `.tflite` file: tensors, operators, inputs and outputs.

The first one is the network; control flow and initial values of variables have the others.

FlatBuffers have offsets that may lead anywhere, also to the same place many times. Everything is
read within a budget that grows with the size of the file, and every fault becomes a LoadError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qgraph.archives import parse_json, reading
from qgraph.errors import LoadError, UnsupportedError
from qgraph.foreign import FlatObject
from qgraph.frontends.tflite.tensors import CODES, PACKED, LiteScale, LiteTensor, dtype_of
from qgraph.ir.types import Array
from qgraph.tflite_schema import IDENTIFIER, METADATA, schema

SUFFIX = ".tflite"
DAMAGED = "not a sound TensorFlow Lite file"
HINT = "the file may be truncated; write or download it again"
MAX_RANK = 8
SLACK = 1 << 12  # entries beyond those that a file of this size may have


@dataclass(frozen=True)
class LiteOperator:
    """One operator: its name in the schema, its tensors (-1: omitted) and its options."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: FlatObject | None


@dataclass(frozen=True)
class LiteSubgraph:
    """Operators on tensors, which are named by their numbers."""

    tensors: tuple[LiteTensor, ...]
    operators: tuple[LiteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class LiteModel:
    """A file: the first subgraph is the network, whose `outputs` map public names to tensors."""

    subgraphs: tuple[LiteSubgraph, ...]
    outputs: Mapping[str, int]
    size: int  # of the file, in bytes
    states: Mapping[str, str]  # of an export: outputs with next values, by input

    @property
    def network(self) -> LiteSubgraph:
        return self.subgraphs[0]


def is_tflite(head: bytes) -> bool:
    """Whether a file that begins with `head` is a TensorFlow Lite file."""
    return head[4:8] == IDENTIFIER


def read(data: bytes) -> LiteModel:
    """The network in a file.

    Raises LoadError for a damaged file, UnsupportedError if the package `tflite` is missing.
    """
    package = schema()
    with reading(None, DAMAGED, HINT):
        return _Reader(package, data).model()


class _Reader:
    """Counts what it reads, because a damaged file may state any number of entries."""

    def __init__(self, package: FlatObject, data: bytes) -> None:
        self.package, self.data = package, data
        self.left = len(data) + SLACK
        self.operators = _names(package.BuiltinOperator)
        self.options = _names(package.BuiltinOptions)
        self.more_options = _names(package.BuiltinOptions2)
        self.types = _names(package.TensorType)

    def count(self, number: int) -> int:
        self.left -= number
        if number < 0 or self.left < 0:
            raise LoadError(f"{DAMAGED}: more entries than bytes")
        return number

    def each(self, length: int, at: Callable[[int], FlatObject]) -> Iterator[FlatObject]:
        for i in range(self.count(length)):
            found = at(i)
            if found is None:
                raise LoadError(f"{DAMAGED}: entry {i} is missing")
            yield found

    def numbers(self, length: int, read: Callable[[], FlatObject]) -> Array:
        """A vector of numbers; without entries where it is missing."""
        return np.asarray(read()) if self.count(length) else np.zeros(0, np.int64)

    def indices(self, length: int, read: Callable[[], FlatObject], below: int) -> tuple[int, ...]:
        found = tuple(int(i) for i in self.numbers(length, read))
        if any(not -1 <= i < below for i in found):
            raise LoadError(f"{DAMAGED}: a tensor of number {max(found)}, of {below}")
        return found

    def model(self) -> LiteModel:
        model = self.package.Model.GetRootAs(self.data, 0)
        if not model.SubgraphsLength():
            raise LoadError("the file has no network", hint=HINT)
        codes = [
            self.code(code) for code in self.each(model.OperatorCodesLength(), model.OperatorCodes)
        ]
        buffers = list(self.each(model.BuffersLength(), model.Buffers))
        subgraphs = tuple(
            self.subgraph(graph, codes, buffers)
            for graph in self.each(model.SubgraphsLength(), model.Subgraphs)
        )
        network = subgraphs[0]
        if not network.outputs:
            raise LoadError("the file has no outputs", hint=HINT)
        outputs = self.public(model, network.outputs, network.tensors)
        return LiteModel(subgraphs, outputs, len(self.data), self.states(model, buffers))

    def states(self, model: FlatObject, buffers: list[FlatObject]) -> Mapping[str, str]:
        """The states that an export of qgraph names in its metadata."""
        for entry in self.each(model.MetadataLength(), model.Metadata):
            number = entry.Buffer()
            if entry.Name() == METADATA.encode() and 0 <= number < len(buffers):
                held = parse_json(bytes(self.content(buffers[number]))).get("states")
                pairs = held.items() if isinstance(held, dict) else ()
                return {str(state): str(output) for state, output in pairs}
        return {}

    def subgraph(
        self, graph: FlatObject, codes: list[str], buffers: list[FlatObject]
    ) -> LiteSubgraph:
        tensors = tuple(
            self.tensor(tensor, buffers)
            for tensor in self.each(graph.TensorsLength(), graph.Tensors)
        )
        operators = tuple(
            self.operator(operator, codes, len(tensors))
            for operator in self.each(graph.OperatorsLength(), graph.Operators)
        )
        inputs = self.indices(graph.InputsLength(), graph.InputsAsNumpy, len(tensors))
        outputs = self.indices(graph.OutputsLength(), graph.OutputsAsNumpy, len(tensors))
        if min((*inputs, *outputs), default=0) < 0:
            raise LoadError("the file omits an input or an output", hint=HINT)
        return LiteSubgraph(tensors, operators, inputs, outputs)

    def code(self, code: FlatObject) -> str:
        """The name of an operator; newer files have large numbers in a second field."""
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = self.operators.get(number, f"operator {number}")
        if name == "CUSTOM":
            return f"CUSTOM {(code.CustomCode() or b'').decode()}"
        return name

    def public(
        self, model: FlatObject, outputs: tuple[int, ...], tensors: tuple[LiteTensor, ...]
    ) -> Mapping[str, int]:
        """Names of outputs: those of the signature, or of the tensors."""
        for signature in self.each(model.SignatureDefsLength(), model.SignatureDefs):
            if signature.SubgraphIndex() == 0:
                maps = self.each(signature.OutputsLength(), signature.Outputs)
                named = {entry.TensorIndex(): entry.Name().decode() for entry in maps}
                if set(named) == set(outputs) and len(set(named.values())) == len(named):
                    return {named[index]: index for index in outputs}
        return {tensors[index].short: index for index in outputs}

    def tensor(self, tensor: FlatObject, buffers: list[FlatObject]) -> LiteTensor:
        shape = self.shape(tensor.ShapeLength(), tensor.ShapeAsNumpy)
        signature = self.shape(tensor.ShapeSignatureLength(), tensor.ShapeSignatureAsNumpy)
        dims = signature if len(signature) == len(shape) else shape
        kind = self.types.get(tensor.Type(), str(tensor.Type()))
        number = tensor.Buffer()
        if not 0 <= number < max(len(buffers), 1):
            raise LoadError(f"{DAMAGED}: a buffer of number {number}, of {len(buffers)}")
        return LiteTensor(
            (tensor.Name() or b"").decode(),
            kind,
            shape,
            tuple(None if d < 0 else d for d in dims),
            self.content(buffers[number]) if buffers and number else b"",
            self.scale(tensor.Quantization()) if kind in CODES else None,
            "sparse" if tensor.Sparsity() else "variable" if tensor.IsVariable() else "",
        )

    def shape(self, length: int, read: Callable[[], FlatObject]) -> tuple[int, ...]:
        if length > MAX_RANK:
            raise LoadError(f"{DAMAGED}: a tensor of rank {length}")
        return tuple(int(d) for d in self.numbers(length, read))

    def content(self, buffer: FlatObject) -> bytes | memoryview:
        """The bytes of a buffer, which large files have behind the FlatBuffer."""
        start, size = buffer.Offset(), buffer.Size()
        if start > 1:
            if start + size > len(self.data):
                raise LoadError(f"{DAMAGED}: a buffer ends at byte {start + size:,}", hint=HINT)
            return memoryview(self.data)[start : start + size]
        return memoryview(buffer.DataAsNumpy()) if buffer.DataLength() else b""

    def scale(self, held: FlatObject | None) -> LiteScale | None:
        if held is None or not held.ScaleLength():
            return None
        scales = self.numbers(held.ScaleLength(), held.ScaleAsNumpy)
        zeros = self.numbers(held.ZeroPointLength(), held.ZeroPointAsNumpy)
        zeros = zeros if zeros.size else np.zeros(1, np.int64)
        if zeros.size not in (1, scales.size):
            raise LoadError(f"{DAMAGED}: {scales.size} scales and {zeros.size} zero points")
        if not np.all((scales >= 0) & (scales < np.inf)):
            raise LoadError(f"{DAMAGED}: a scale that is not a positive number")
        return LiteScale(scales, zeros, held.QuantizedDimension())

    def operator(self, operator: FlatObject, codes: list[str], tensors: int) -> LiteOperator:
        code = operator.OpcodeIndex()
        if not 0 <= code < len(codes):
            raise LoadError(f"{DAMAGED}: an operator of kind {code}, of {len(codes)}")
        return LiteOperator(
            codes[code],
            self.indices(operator.InputsLength(), operator.InputsAsNumpy, tensors),
            self.indices(operator.OutputsLength(), operator.OutputsAsNumpy, tensors),
            self.options_of(operator),
        )

    def options_of(self, operator: FlatObject) -> FlatObject | None:
        table = operator.BuiltinOptions()
        kind = self.options.get(operator.BuiltinOptionsType(), "NONE")
        if table is None or kind == "NONE":
            table = operator.BuiltinOptions2()
            kind = self.more_options.get(operator.BuiltinOptions2Type(), "NONE")
        if table is None or kind == "NONE":
            return None
        options = getattr(self.package, kind)()
        options.Init(table.Bytes, table.Pos)
        return options


def _names(kind: FlatObject) -> Mapping[int, str]:
    """The members of an enumeration by number."""
    members = {value: name for name, value in vars(kind).items() if isinstance(value, int)}
    return MappingProxyType(members)


def decoded(tensor: LiteTensor, name: str) -> Array:
    """The numbers of a constant. Codes are multiplied by their scale.

    Raises LoadError where the data does not fit the shape, UnsupportedError for other types.
    """
    if tensor.state == "sparse":
        raise UnsupportedError("a sparse constant", node=name, hint="write the model without it")
    dtype, size = np.dtype(dtype_of(tensor.kind, name)), math.prod(tensor.shape)
    packed = tensor.kind == PACKED
    if ((size + 1) // 2 if packed else size * dtype.itemsize) != len(tensor.content):
        raise LoadError(
            f"{len(tensor.content):,} bytes do not fit shape {list(tensor.shape)} of {dtype}",
            node=name,
            hint=HINT,
        )
    array = np.frombuffer(tensor.content, dtype)
    if packed:  # each half byte, with its sign
        array = np.stack([array << 4 >> 4, array >> 4], -1).reshape(-1)[:size]
    array = array.reshape(tensor.shape)
    return array if tensor.scale is None else tensor.scale.real(array)
