"""A model that is already quantized, as the float model that it stands for.

Two spellings are read: QDQ (QuantizeLinear and DequantizeLinear around float ops) and QOperator
(QLinearConv and its like, from ONNX and from ONNX Runtime). Weights become float numbers.
Quantizers of activations are left out, so that the network can be quantized again. One whose zero
point is its lowest code cuts off negative values: converters drop a ReLU before it, and it is put
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qgraph.foreign import OnnxObject, Proto
from qgraph.frontends.onnx.tensors import decode
from qgraph.ir.types import Array

# Ops that give the same values on codes and on the numbers that these represent.
MOVES = frozenset(
    (
        "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape",
        "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    )
)  # fmt: skip
QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
UNSIGNED = (0, 2, 4, 21)  # ONNX's numbers of no type (uint8), uint8, uint16 and uint4
EVERY = -1  # the operands of Concat: all from here on


@dataclass(frozen=True)
class QOperator:
    """An op on codes: the float op, and the slots of its operands.

    Each operand has three slots: codes, scale, zero point. The scale and the zero point of the
    result are at `result`. `bias` is a slot of int32 numbers on the scale of the products.
    """

    op: str
    operands: tuple[int, ...]
    result: int
    bias: int | None = None
    channels: int = 0  # the axis of weights that scales are along


QOPERATORS = {
    "QLinearConv": QOperator("Conv", (0, 3), 6, bias=8),
    "QLinearMatMul": QOperator("MatMul", (0, 3), 6, channels=1),
    "QGemm": QOperator("Gemm", (0, 3), 7, bias=6, channels=1),
    "QLinearAdd": QOperator("Add", (0, 3), 6),
    "QLinearMul": QOperator("Mul", (0, 3), 6),
    "QLinearAveragePool": QOperator("AveragePool", (0,), 3),
    "QLinearGlobalAveragePool": QOperator("GlobalAveragePool", (0,), 3),
    "QLinearLeakyRelu": QOperator("LeakyRelu", (0,), 3),
    "QLinearSigmoid": QOperator("Sigmoid", (0,), 3),
    "QLinearSoftmax": QOperator("Softmax", (0,), 3),
    "QLinearReduceMean": QOperator("ReduceMean", (0,), 3),
    "QLinearConcat": QOperator("Concat", (2, EVERY), 0),
}
# Attributes of ONNX Runtime's ops that the float ops do not have.
OWN_ATTRIBUTES = {"opset", "channels_last"}


def dequantized(proto: Proto, folder: Path | None) -> tuple[Proto, int]:
    """The float model, and the number of quantizers of activations that were left out.

    A model without quantizers is returned as it is. Raises LoadError for damaged constants.
    """
    ops = {node.op_type for node in proto.graph.node}
    if not ops & {QUANTIZE, *QOPERATORS}:
        return proto, 0
    copy = type(proto)()
    copy.CopyFrom(proto)
    dequantizer = _Dequantizer(copy, folder)
    dequantizer.replace_qoperators()
    return copy, dequantizer.leave_out_quantizers()


def note(count: int) -> str:
    """The text about a model that was already quantized."""
    return (
        f"the model is already quantized: its weights were dequantized and {count} quantizers of "
        "activations left out; the network is quantized again, with powers of two"
    )


class _Dequantizer:
    def __init__(self, proto: Proto, folder: Path | None) -> None:
        self.graph, self.folder = proto.graph, folder
        self.constants: dict[str, OnnxObject] = {t.name: t for t in self.graph.initializer}
        self.constants |= {
            node.output[0]: node.attribute[0].t
            for node in self.graph.node
            if node.op_type == "Constant" and node.attribute[0].name == "value"
        }
        self.taken = {value for node in self.graph.node for value in node.output}
        self.taken |= self.constants.keys() | {value.name for value in self.graph.input}

    # -- ops on codes ------------------------------------------------------------------------

    def replace_qoperators(self) -> None:
        nodes: list[Proto] = []
        for node in self.graph.node:
            about = QOPERATORS.get(node.op_type)
            made = None if about is None else self._as_float_op(node, about)
            nodes += [node] if made is None else made
        del self.graph.node[:]
        self.graph.node.extend(nodes)

    def _as_float_op(self, node: Proto, about: QOperator) -> list[Proto] | None:
        """Nodes that dequantize the operands, compute in float and quantize; None if impossible."""
        attributes = {a.name: a for a in node.attribute}
        if "channels_last" in attributes and attributes["channels_last"].i:
            return None
        slots, nodes, inputs = list(node.input), list[Proto](), list[str]()
        first, *others = about.operands
        starts = range(first, len(slots), 3) if EVERY in others else about.operands
        for start in starts:
            codes, scale, *zero = slots[start : start + 3]
            channels = about.channels
            if "transB" in attributes and attributes["transB"].i:
                channels = 0
            if codes in self.constants:
                values = self._values(codes, scale, zero[0] if zero else "", channels)
                if values is None:
                    return None
                inputs.append(self._constant(values, codes))
            else:
                name = self._fresh(f"{codes}/value")
                nodes.append(self._node(DEQUANTIZE, slots[start : start + 3], name))
                inputs.append(name)
        if about.bias is not None and len(slots) > about.bias and slots[about.bias]:
            bias = self._bias(slots, about)
            if bias is None:
                return None
            inputs.append(self._constant(bias, slots[about.bias]))
        value = self._fresh(f"{node.output[0]}/value")
        made = self._node(about.op, inputs, value)
        made.attribute.extend(a for a in node.attribute if a.name not in OWN_ATTRIBUTES)
        nodes.append(made)
        result = [value, *slots[about.result : about.result + 2]]
        nodes.append(self._node(QUANTIZE, result, node.output[0]))
        return nodes

    def _values(self, codes: str, scale: str, zero: str, channels: int) -> Array | None:
        """Constant codes as numbers; None if a scale or zero point is not constant."""
        array, factor = self._array(codes), self._array(scale)
        offset = self._array(zero) if zero else np.zeros((), np.int64)
        if array is None or factor is None or offset is None:
            return None
        shape = [1] * array.ndim
        if factor.size > 1:
            shape[channels] = -1
        offset = np.broadcast_to(np.ravel(offset), factor.size)
        steps = array.astype(np.float64) - offset.reshape(shape)
        values: Array = steps * factor.reshape(shape).astype(np.float64)
        return values.astype(np.float32)

    def _bias(self, slots: Sequence[str], about: QOperator) -> Array | None:
        assert about.bias is not None
        x, w = (self._array(slots[start + 1]) for start in about.operands)
        bias = self._array(slots[about.bias])
        if x is None or w is None or bias is None:
            return None
        values: Array = bias.astype(np.float64) * (x.astype(np.float64) * w.astype(np.float64))
        return values.astype(np.float32)

    def _array(self, name: str) -> Array | None:
        tensor = self.constants.get(name)
        return None if tensor is None else decode(tensor, self.folder, name)

    # -- quantizers of activations -----------------------------------------------------------

    def leave_out_quantizers(self) -> int:
        """Replace quantizers by their inputs, where all users dequantize alike; count them."""
        users: dict[str, list[Proto]] = {}
        for node in self.graph.node:
            for value in node.input:
                users.setdefault(value, []).append(node)
        outputs, count = {value.name for value in self.graph.output}, 0
        for node in list(self.graph.node):
            if node.op_type != QUANTIZE or node.input[0] in self.constants:
                continue
            found = self._dequantizers(node, users, outputs)
            if found is None:
                continue
            cuts = self._cuts_negative_values(node)
            node.op_type, node.domain = ("Relu" if cuts else "Identity"), ""
            del node.input[1:], node.attribute[:]
            for other in found:
                other.op_type, other.domain = "Identity", ""
                del other.input[1:], other.attribute[:]
            count += 1
        self._forget_types()
        return count

    def _dequantizers(
        self, node: Proto, users: dict[str, list[Proto]], outputs: set[str]
    ) -> list[Proto] | None:
        """The nodes that dequantize its codes with its own scale, through moves; None if another
        node takes the codes."""
        found, waiting = list[Proto](), [node.output[0]]
        while waiting:
            value = waiting.pop()
            if value in outputs:
                return None
            for user in users.get(value, ()):
                if user.op_type == DEQUANTIZE and user.input[0] == value:
                    if not self._same_scale(node, user):
                        return None
                    found.append(user)
                elif user.op_type == "Concat" or user.op_type not in MOVES:
                    return None
                elif user.input[0] == value:
                    waiting += user.output
                else:
                    return None
        return found or None

    def _same_scale(self, one: Proto, other: Proto) -> bool:
        def same(i: int) -> bool:
            names = [node.input[i] if len(node.input) > i else "" for node in (one, other)]
            arrays = [self._array(name) for name in names]
            if names[0] == names[1]:
                return True
            first, second = arrays
            return first is not None and second is not None and np.array_equal(first, second)

        return same(1) and same(2)

    def _cuts_negative_values(self, node: Proto) -> bool:
        if len(node.input) < 3 or not node.input[2]:
            kinds = [a.i for a in node.attribute if a.name == "output_dtype"]
            return not kinds or kinds[0] in UNSIGNED  # with zero point 0
        zero = self._array(node.input[2])
        if zero is None or zero.dtype.kind not in "iu":
            return False
        return bool((zero == np.iinfo(zero.dtype).min).all())

    def _forget_types(self) -> None:
        """Types of inner values, which may be those of codes."""
        del self.graph.value_info[:]

    # -- nodes -------------------------------------------------------------------------------

    def _node(self, op: str, inputs: Iterable[str], output: str) -> Proto:
        from onnx import helper

        return helper.make_node(op, list(inputs), [output], name=output)

    def _constant(self, values: Array, stem: str) -> str:
        from onnx import numpy_helper

        name = self._fresh(f"{stem}/values")
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _fresh(self, stem: str) -> str:
        name, count = stem, 0
        while name in self.taken:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name
