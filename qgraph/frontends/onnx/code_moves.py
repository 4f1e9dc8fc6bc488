"""Ops on codes that join, choose, limit or pad them: the same ops on the numbers of the codes.

QOperator files have such ops between QLinear ops. If all codes have one scale, the op is the same
between dequantizers and a quantizer of that scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from qgraph.foreign import Proto
from qgraph.frontends.onnx.editing import ModelEditor
from qgraph.ir.types import Array

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
# Ops that give the same values on codes and on the numbers that these represent.
MOVES = frozenset(
    (
        "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape",
        "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    )
)  # fmt: skip


@dataclass(frozen=True)
class ScaleOfCodes:
    """Scale and zero point of codes: the names of both, which are constants with one element."""

    names: tuple[str, str]
    scale: float
    zero: int
    dtype: np.dtype[np.integer[Any]]

    def same(self, other: ScaleOfCodes) -> bool:
        return (self.scale, self.zero, self.dtype) == (other.scale, other.zero, other.dtype)


class CodeMoves:
    """Rewrites the ops of a model in order, and knows the scale of each tensor of codes."""

    def __init__(self, editor: ModelEditor) -> None:
        self.editor = editor
        self.scales: dict[str, ScaleOfCodes] = {}

    def rewrite(self) -> None:
        nodes: list[Proto] = []
        for node in self.editor.graph.node:
            read = self._scale_of if node.op_type == QUANTIZE else self._common_scale
            scale = read(node)
            write = WRITERS.get(node.op_type)
            others = None if scale is None or write is None else write(self, node, scale)
            if scale is not None and others is not None:
                nodes += self._between(node, scale, others)
            else:
                nodes.append(node)
            if scale is not None:
                self.scales.update(dict.fromkeys(node.output, scale))
        del self.editor.graph.node[:]
        self.editor.graph.node.extend(nodes)

    def _scale_of(self, node: Proto) -> ScaleOfCodes | None:
        if len(node.input) < 3 or not node.input[2]:
            return None
        scale, zero = (self.editor.array(name) for name in node.input[1:3])
        if scale is None or zero is None or scale.size != 1 or zero.dtype.kind not in "iu":
            return None
        names = (node.input[1], node.input[2])
        return ScaleOfCodes(names, float(scale.reshape(())), int(zero.reshape(())), zero.dtype)

    def _common_scale(self, node: Proto) -> ScaleOfCodes | None:
        """The scale of the codes that a node reads and returns; None if it has no common one."""
        if node.op_type not in MOVES and node.op_type not in WRITERS:
            return None
        scales = [self.scales.get(node.input[slot]) for slot in self._slots(node)]
        first = scales[0] if scales else None
        alike = first is not None and all(s is not None and s.same(first) for s in scales)
        return first if alike else None

    @staticmethod
    def _slots(node: Proto) -> range:
        """The inputs that are values."""
        if node.op_type == "Concat":
            return range(len(node.input))
        return range(1, 3) if node.op_type == "Where" else range(min(1, len(node.input)))

    def _between(self, node: Proto, scale: ScaleOfCodes, others: Mapping[int, str]) -> list[Proto]:
        """The op between dequantizers and a quantizer; `others` are its inputs that change."""
        editor, made, inputs = self.editor, list[Proto](), list(node.input)
        for slot in self._slots(node):
            inputs[slot] = editor.fresh(f"{node.input[slot]}/value")
            made.append(editor.node(DEQUANTIZE, [node.input[slot], *scale.names], inputs[slot]))
        for slot, name in others.items():
            inputs += [""] * (slot + 1 - len(inputs))
            inputs[slot] = name
        value = editor.fresh(f"{node.output[0]}/value")
        moved = editor.node(node.op_type, inputs, value)
        moved.attribute.extend(node.attribute)
        made += [moved, editor.node(QUANTIZE, [value, *scale.names], node.output[0])]
        return made

    def limits(self, node: Proto, scale: ScaleOfCodes) -> Mapping[int, str] | None:
        """The limits of a Clip as numbers, without those of the type; None if they vary."""
        held: dict[int, str] = {}
        ends = np.iinfo(scale.dtype)
        for slot, end in ((1, ends.min), (2, ends.max)):
            if len(node.input) <= slot or not node.input[slot]:
                continue
            limit = self.editor.array(node.input[slot])
            if limit is None:
                return None
            code = int(limit.reshape(()))
            held[slot] = (
                "" if code == end else self._number((code - scale.zero) * scale.scale, node)
            )
        return held

    def padding(self, node: Proto, scale: ScaleOfCodes) -> Mapping[int, str] | None:
        """Zeros for a Pad with the zero point; None for other padding."""
        modes = [a.s for a in node.attribute if a.name == "mode"]
        if modes not in ([], [b"constant"]):
            return {}
        value = self._padding_code(node)
        return {2: self._number(0.0, node)} if value == scale.zero else None

    def _padding_code(self, node: Proto) -> int | None:
        if len(node.input) < 3 or not node.input[2]:
            return 0
        value: Array | None = self.editor.array(node.input[2])
        return None if value is None else int(value.reshape(()))

    def _number(self, value: float, node: Proto) -> str:
        return self.editor.add_constant(np.asarray(value, np.float32), f"{node.output[0]}/limit")


Writer = Callable[[CodeMoves, Proto, ScaleOfCodes], Mapping[int, str] | None]
# Ops and their inputs that change, by slot; None if the op stays on codes.
WRITERS: Mapping[str, Writer] = MappingProxyType(
    {
        "Concat": lambda moves, node, scale: {},
        "Where": lambda moves, node, scale: {},
        "Clip": CodeMoves.limits,
        "Pad": CodeMoves.padding,
    }
)
