"""An ONNX graph written node by node, with weights as `torch.onnx.export` stores them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

Size = int | str


def tensor(name: str, *shape: Size, kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


class WrittenGraph:
    """Nodes in their order, and initializers with random numbers."""

    def __init__(self, opset: int, producer: str = "pytorch", seed: int = 0) -> None:
        self.opset, self.producer = opset, producer
        self.rng = np.random.default_rng(seed)
        self.nodes: list[object] = []
        self.weights: dict[str, np.ndarray] = {}

    def weight(self, name: str, array: ArrayLike, dtype: str = "float32") -> str:
        self.weights[name] = np.asarray(array, dtype)
        return name

    def drawn(self, name: str, *shape: int, scale: float = 0.5) -> str:
        return self.weight(name, self.rng.normal(0, scale, shape))

    def node(self, op: str, *inputs: str, to: str | None = None, **attrs: object) -> str:
        """Add a node with one output; its name is that of the output."""
        output = to or f"/{op}_{len(self.nodes)}_output_0"
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attrs))
        return output

    def cast(self, x: str, kind: int = TensorProto.FLOAT) -> str:
        output = f"/Cast_{len(self.nodes)}_output_0"
        self.nodes.append(helper.make_node("Cast", [x], [output], name=output, to=kind))
        return output

    def several(self, op: str, inputs: list[str], outputs: list[str], **attrs: object) -> None:
        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], **attrs))

    def constant(self, value: ArrayLike, dtype: str = "float32") -> str:
        """A Constant node, as tracing writes numbers of the Python code."""
        array = numpy_helper.from_array(np.asarray(value, dtype))
        return self.node("Constant", value=array)

    def linear(self, x: str, scope: str, rows: int, columns: int, to: str | None = None) -> str:
        """`torch.nn.Linear`: Gemm with a kernel [columns, rows]."""
        kernel = self.drawn(f"{scope}.weight", columns, rows, scale=rows**-0.5)
        bias = self.drawn(f"{scope}.bias", columns, scale=0.1)
        return self.node("Gemm", x, kernel, bias, to=to, alpha=1.0, beta=1.0, transB=1)

    def layers(
        self, x: str, scope: str, sizes: tuple[int, ...], activation: str, to: str | None = None
    ) -> str:
        """`torch.nn.Sequential` of linear layers with activations between them."""
        pairs = list(pairwise(sizes))
        for index, (rows, columns) in enumerate(pairs):
            last = index == len(pairs) - 1
            x = self.linear(x, f"{scope}.{2 * index}", rows, columns, to if last else None)
            if not last:
                x = self.activation(x, activation)
        return x

    def activation(self, x: str, kind: str) -> str:
        if kind == "Swish":  # torch.mul(x, torch.sigmoid(x))
            return self.node("Mul", x, self.node("Sigmoid", x))
        return self.node(kind, x, alpha=1.0) if kind == "Elu" else self.node(kind, x)

    def model(self, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> ModelProto:
        kept = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "main_graph", inputs, outputs, kept)
        return helper.make_model(
            graph,
            producer_name=self.producer,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=6 if self.opset < 15 else 8,
        )
