"""Changes of an ONNX model before it is read: its constants, users of values, and new nodes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from qgraph.foreign import OnnxObject, Proto
from qgraph.frontends.onnx.tensors import decode
from qgraph.ir.types import Array


class ModelEditor:
    """The graph of a model, changed in place. Values keep the users that they had at first."""

    def __init__(self, graph: Proto, folder: Path | None) -> None:
        self.graph, self.folder = graph, folder
        self.constants: dict[str, OnnxObject] = {t.name: t for t in graph.initializer}
        self.constants |= {
            node.output[0]: node.attribute[0].t
            for node in graph.node
            if node.op_type == "Constant" and node.attribute[0].name == "value"
        }
        self._taken = {value for node in graph.node for value in node.output}
        self._taken |= self.constants.keys() | {value.name for value in graph.input}
        self._makers = {value: node for node in graph.node for value in node.output if value}
        self._users: dict[str, list[Proto]] = {}
        for node in graph.node:
            for value in dict.fromkeys(node.input):
                self._users.setdefault(value, []).append(node)
        self._outputs = {value.name for value in graph.output}

    def users(self, value: str) -> list[Proto]:
        return self._users.get(value, []) if value else []

    def maker(self, value: str) -> Proto | None:
        return self._makers.get(value)

    def is_output(self, value: str) -> bool:
        return value in self._outputs

    def array(self, name: str) -> Array | None:
        """A constant, None for other values."""
        tensor = self.constants.get(name)
        return None if tensor is None else decode(tensor, self.folder, name)

    def node(self, op: str, inputs: Iterable[str], output: str) -> Proto:
        from onnx import helper

        return helper.make_node(op, list(inputs), [output], name=output)

    def add_constant(self, values: Array, stem: str) -> str:
        from onnx import numpy_helper

        name = self.fresh(f"{stem}/values")
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def fresh(self, stem: str) -> str:
        name, count = stem, 0
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def as_identity(self, node: Proto, value: str = "") -> None:
        """Make a node return `value`, or its first input."""
        node.input[0] = value or node.input[0]
        rewrite(node, "Identity")

    def forget(self, node: Proto) -> None:
        """Remove a node that nothing uses."""
        self.graph.node.remove(node)


def rewrite(node: Proto, op: str) -> None:
    """Make a node a function of its first input."""
    node.op_type, node.domain = op, ""
    del node.input[1:], node.attribute[:]
