"""A model that is already quantized, as the float model that it stands for.

Two spellings are read: QDQ (QuantizeLinear and DequantizeLinear around float ops) and QOperator
(QLinearConv and its like, from ONNX and from ONNX Runtime). Weights become float numbers.
Quantizers of activations are left out, so that the network can be quantized again. One whose zero
point is its lowest code cuts off negative values: converters drop a ReLU before it, and it is put
back. If scales are to be kept, quantizers with a grid (`qgraph.frontends.grids`) stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from qgraph.foreign import Proto
from qgraph.frontends.grids import ACTIVATION_BITS, DOMAIN, QUANTIZED, Grid, ScalesOfFile, grid_of
from qgraph.frontends.onnx.code_moves import DEQUANTIZE, MOVES, QUANTIZE, CodeMoves
from qgraph.frontends.onnx.dynamic import OPS as DYNAMIC_OPS
from qgraph.frontends.onnx.dynamic import float_layers
from qgraph.frontends.onnx.editing import ModelEditor, rewrite
from qgraph.frontends.onnx.qoperators import EVERY, OWN_ATTRIBUTES, QOPERATORS, QOperator
from qgraph.ir.types import Array
from qgraph.words import counted

DYNAMIC_NOTE = (
    "the model is quantized dynamically, with scales that it computes from each input; it was read "
    "as a float network"
)
UNSIGNED = (0, 2, 4, 21)  # ONNX's numbers of no type (uint8), uint8, uint16 and uint4

# Types of codes by ONNX's numbers; a quantizer without a type has uint8.
_NUMBERED = {
    0: "uint8", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32",
}  # fmt: skip
NARROW = {21: "uint8", 22: "int8"}  # types of 4 bits, and those that hold their codes


@dataclass(frozen=True)
class Dequantized:
    """The float model of an already quantized one.

    left_out: the number of quantizers of activations without a place in the model. scales: the
    number of scales of the file, and of those with a grid. grids: those of constants, by tensor;
    empty if scales are not to be kept. dynamic: the number of layers with dynamic quantizers.
    """

    proto: Proto
    left_out: int = 0
    kept: int = 0
    scales: int = 0
    with_grid: int = 0
    grids: Mapping[str, Grid] = field(default_factory=dict)
    dynamic: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the scales."""
        if self.dynamic:
            layers = counted(self.dynamic, "layer")
            return (f"{DYNAMIC_NOTE}: the weights of {layers} were dequantized", *self._of_scales)
        return self._of_scales

    @property
    def _of_scales(self) -> tuple[str, ...]:
        keeps = bool(self.kept or self.grids)
        return ScalesOfFile(self.scales, self.with_grid, self.left_out, keeps).notes()


def dequantized(proto: Proto, folder: Path | None, keep_scales: bool = False) -> Dequantized:
    """The float model, and what became of the scales.

    A model without quantizers is returned as it is. Raises LoadError for damaged constants.
    """
    ops = {node.op_type for node in proto.graph.node}
    if not ops & {QUANTIZE, DEQUANTIZE, *QOPERATORS, *DYNAMIC_OPS}:
        return Dequantized(proto)
    copy = type(proto)()
    copy.CopyFrom(proto)
    dynamic = float_layers(ModelEditor(copy.graph, folder)) if ops & DYNAMIC_OPS else 0
    dequantizer = _Dequantizer(copy, folder, keep_scales)
    dequantizer.replace_qoperators()
    CodeMoves(dequantizer).rewrite()
    return replace(dequantizer.result(copy), dynamic=dynamic)


class _Dequantizer(ModelEditor):
    def __init__(self, proto: Proto, folder: Path | None, keep_scales: bool) -> None:
        _widen_constants(proto.graph)
        super().__init__(proto.graph, folder)
        self.keep_scales = keep_scales
        self.grids: dict[str, Grid] = {}
        self.scales: list[Grid | None] = []

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
                inputs.append(self.add_constant(values, codes))
                self._note_grid(inputs[-1], [codes, scale, *zero])
            else:
                name = self.fresh(f"{codes}/value")
                nodes.append(self.node(DEQUANTIZE, slots[start : start + 3], name))
                inputs.append(name)
        if about.bias is not None and len(slots) > about.bias and slots[about.bias]:
            bias = self._bias(slots, about)
            if bias is None:
                return None
            inputs.append(self.add_constant(bias, slots[about.bias]))
        value = self.fresh(f"{node.output[0]}/value")
        made = self.node(about.op, inputs, value)
        made.attribute.extend(a for a in node.attribute if a.name not in OWN_ATTRIBUTES)
        nodes.append(made)
        result = [value, *slots[about.result : about.result + 2]]
        nodes.append(self.node(QUANTIZE, result, node.output[0]))
        return nodes

    def _values(self, codes: str, scale: str, zero: str, channels: int) -> Array | None:
        """Constant codes as numbers; None if a scale or zero point is not constant."""
        array, factor = self.array(codes), self.array(scale)
        offset = self.array(zero) if zero else np.zeros((), np.int64)
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
        x, w = (self.array(slots[start + 1]) for start in about.operands)
        bias = self.array(slots[about.bias])
        if x is None or w is None or bias is None:
            return None
        values: Array = bias.astype(np.float64) * (x.astype(np.float64) * w.astype(np.float64))
        return values.astype(np.float32)

    # -- quantizers of activations -----------------------------------------------------------

    def result(self, proto: Proto) -> Dequantized:
        """Replace quantizers by their inputs, where all users dequantize alike, or keep them."""
        for node in self.graph.node:
            if node.op_type == DEQUANTIZE and node.input[0] in self.constants:
                self._note_grid(node.output[0], list(node.input))
        users: dict[str, list[Proto]] = {}
        for node in self.graph.node:
            for value in node.input:
                users.setdefault(value, []).append(node)
        outputs, left_out, kept = {value.name for value in self.graph.output}, 0, 0
        for node in list(self.graph.node):
            if node.op_type != QUANTIZE or node.input[0] in self.constants:
                continue
            found = self._dequantizers(node, users, outputs)
            if found is None:
                continue
            grid = self._grid(node)
            self.scales.append(grid)
            if grid is not None and self.keep_scales:
                keep(node, grid)
                self._take_name(node, found, users)
                kept += 1
            else:
                cuts = self._cuts_negative_values(node)
                rewrite(node, "Relu" if cuts else "Identity")
                left_out += 1
            for other in found:
                rewrite(other, "Identity")
        if kept or self.grids:
            self._without_wide_limits()
        self._forget_types()
        with_grid = sum(grid is not None for grid in self.scales)
        grids = self.grids if self.keep_scales else {}
        return Dequantized(proto, left_out, kept, len(self.scales), with_grid, grids)

    def _take_name(
        self, node: Proto, dequantizers: list[Proto], users: Mapping[str, Sequence[Proto]]
    ) -> None:
        """Give the kept quantizer the name of its values, not that of its codes."""
        codes = node.output[0]
        direct = [other for other in dequantizers if other.input[0] == codes]
        if not direct:
            return
        name = direct[0].output[0]
        direct[0].output[0], node.output[0] = codes, name
        for user in users[codes]:
            for slot, value in enumerate(user.input):
                if value == codes:
                    user.input[slot] = name

    def _note_grid(self, name: str, slots: Sequence[str]) -> None:
        """Record the grid of dequantized codes, which are at the first of `slots`."""
        grid = self._grid_at(slots, self._dtype(slots[0]))
        self.scales.append(grid)
        if grid is not None:
            self.grids[name] = grid

    def _grid(self, node: Proto) -> Grid | None:
        """The grid of a quantizer of activations."""
        slots, kind = list(node.input), [a.i for a in node.attribute if a.name == "output_dtype"]
        zero = slots[2] if len(slots) > 2 else ""
        named = self._dtype(zero) if zero else _NUMBERED.get(kind[0] if kind else 0)
        grid = self._grid_at(slots, named)
        fits = grid is not None and grid.bits in ACTIVATION_BITS and len(grid.exponents) == 1
        return grid if fits else None

    def _grid_at(self, slots: Sequence[str], dtype: str | None) -> Grid | None:
        if dtype is None or slots[1] not in self.constants:
            return None
        zero = self.array(slots[2]) if len(slots) > 2 and slots[2] else None
        if zero is None and len(slots) > 2 and slots[2]:
            return None
        return grid_of(self.array(slots[1]), zero, np.dtype(dtype))

    def _dtype(self, name: str) -> str | None:
        tensor = self.constants.get(name)
        return None if tensor is None else _NUMBERED.get(tensor.data_type)

    def _without_wide_limits(self) -> None:
        """Remove maxima with the lowest float32 number, which qgraph's exports have."""
        lowest = float(np.finfo(np.float32).min)
        for node in self.graph.node:
            if node.op_type == "Max" and len(node.input) == 2 and node.input[1] in self.constants:
                limit = self.array(node.input[1])
                if limit is not None and limit.size == 1 and float(limit.reshape(())) == lowest:
                    rewrite(node, "Identity")

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
            arrays = [self.array(name) for name in names]
            if names[0] == names[1]:
                return True
            first, second = arrays
            return first is not None and second is not None and np.array_equal(first, second)

        return same(1) and same(2)

    def _cuts_negative_values(self, node: Proto) -> bool:
        if len(node.input) < 3 or not node.input[2]:
            kinds = [a.i for a in node.attribute if a.name == "output_dtype"]
            return not kinds or kinds[0] in UNSIGNED  # with zero point 0
        zero = self.array(node.input[2])
        if zero is None or zero.dtype.kind not in "iu":
            return False
        return bool((zero == np.iinfo(zero.dtype).min).all())

    def _forget_types(self) -> None:
        """Types of inner values, which may be those of codes."""
        del self.graph.value_info[:]


def _widen_constants(graph: Proto) -> None:
    """Store 4-bit codes in 8 bits if only DequantizeLinear uses them, with their zero points."""
    from onnx import numpy_helper

    narrow = {t.name: t for t in graph.initializer if t.data_type in NARROW}
    for node in graph.node if narrow else ():
        held = node.op_type == DEQUANTIZE and node.input[0] in narrow
        for slot, name in enumerate(node.input):
            if name in narrow and not (held and slot in (0, 2)):
                del narrow[name]
    for tensor in narrow.values():
        array = np.asarray(numpy_helper.to_array(tensor)).astype(NARROW[tensor.data_type])
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def keep(node: Proto, grid: Grid) -> None:
    """Make a quantizer the op that its importer reads as a `quantize` with this grid."""
    from onnx import helper

    rewrite(node, QUANTIZED)
    node.domain = DOMAIN
    node.attribute.extend(helper.make_attribute(k, v) for k, v in grid.attributes().items())
