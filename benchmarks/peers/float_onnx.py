"""Write a float graph as ONNX in NCHW, as an exporter of another tool would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops.attributes import SlidingAttrs
from qgraph.ir.ops.linear import ConvAttrs
from qgraph.ir.ops.movement import PaddingAttrs, TargetAttrs
from qgraph.ir.ops.pool import PoolAttrs, ReductionAttrs
from qgraph.ir.ops.windows import explicit_pads
from qgraph.ir.types import Array
from qgraph.passes import Pass, PassManager
from qgraph.recipes import CLEAN
from qgraph.transforms.fold_batch_norm import FoldBatchNorm

OPSET = 17
FREE = "N"
# Batch norms are folded into the layers before them. Pools, and batch norms behind an activation,
# stay.
FOLDED: tuple[Pass, ...] = (*CLEAN, FoldBatchNorm())
PLAIN: Mapping[str, str] = {
    "relu": "Relu",
    "add": "Add",
    "sigmoid": "Sigmoid",
    "matmul": "MatMul",
    "identity": "Identity",
}


def float_onnx(model: Graph, batch: int | None) -> bytes:
    """An ONNX file of `model` with inputs [batch, channels, height, width]; None leaves the batch
    open.

    Raises UnsupportedError for an op that no network of the benchmarks has.
    """
    import onnx

    graph = model.copy()
    PassManager(FOLDED).run(graph)
    writer = _Writer(graph, batch)
    nodes = list(graph.topological())
    for node in nodes:
        writer.write(node)
    made = onnx.helper.make_graph(
        writer.nodes,
        "float",
        [writer.port(name, name) for name in graph.inputs],
        [writer.port(writer.made[value], value) for value in graph.outputs.values()],
        writer.constants,
    )
    opset = onnx.helper.make_opsetid("", OPSET)
    whole = onnx.helper.make_model(made, opset_imports=[opset], ir_version=8)
    onnx.checker.check_model(whole, full_check=True)
    data: bytes = whole.SerializeToString()
    return data


class _Writer:
    def __init__(self, graph: Graph, batch: int | None) -> None:
        self.graph = graph
        self.batch = batch
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.made: dict[str, str] = {}  # name of the ONNX value, by value of the graph
        self.pads: dict[str, Any] = {}  # zeros around a value, [4, 2], which are not written yet

    def port(self, name: str, value: str) -> Any:
        from onnx import TensorProto
        from onnx.helper import make_tensor_value_info

        shape: list[Any] = [*(self.graph.types[value].shape or ())]
        shape[0] = FREE if self.batch is None else self.batch
        if len(shape) == 4:
            shape = [shape[i] for i in (0, 3, 1, 2)]
        return make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def write(self, node: Node) -> None:
        if node.op == "input":
            self.made[node.name] = node.name
        elif node.op != "const":
            how: Callable[[Node], str] | None = getattr(self, f"_{node.op}", None)
            if node.op in PLAIN:
                self.made[node.name] = self._add(PLAIN[node.op], node, *map(self._at, node.inputs))
            elif how is None:
                raise UnsupportedError(f"cannot be written: {node.op}", node=node.name)
            else:
                self.made[node.name] = how(node)

    # -- helpers -------------------------------------------------------------------------------

    def _at(self, value: str) -> str:
        """The name of the ONNX value. A constant is written first."""
        if value not in self.made:
            self.made[value] = self._constant(self._value(value), value)
        return self.made[value]

    def _value(self, name: str) -> Array:
        value = self.graph.constant(name)
        assert value is not None, name
        return value

    def _constant(self, value: Any, name: str) -> str:
        from onnx.numpy_helper import from_array

        array = np.ascontiguousarray(value)
        self.constants.append(from_array(array, name))
        return name

    def _add(self, op: str, node: Node, *inputs: str, **attrs: Any) -> str:
        from onnx.helper import make_node

        name = f"{node.name}_{len(self.nodes)}"
        self.nodes.append(make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def _rank(self, value: str) -> int:
        return len(self.graph.types[value].shape or ())

    def _window(self, node: Node, kernel: tuple[int, int]) -> dict[str, Any]:
        x = node.inputs[0]
        _, height, width, _ = self.graph.types[x].shape or ()
        assert height is not None and width is not None
        attrs, dilations = node.typed(SlidingAttrs), (1, 1)
        if isinstance(attrs, ConvAttrs):
            dilations = attrs.dilations
        strides = attrs.strides
        sides = explicit_pads((height, width), kernel, strides, dilations, attrs.padding)
        (top, bottom), (left, right) = np.asarray(sides) + self.pads.get(x, 0)
        window = {"kernel_shape": kernel, "strides": strides, "pads": [top, left, bottom, right]}
        if isinstance(attrs, ConvAttrs):
            window["dilations"] = dilations
        return window

    # -- ops -----------------------------------------------------------------------------------

    def _convolved(self, node: Node, w: Array, groups: int) -> str:
        """The filters as OIHW, from [kh, kw, per group, out]; includes the bias that follows."""
        users = self.graph.users(node.name)
        biased = len(users) == 1 and users[0].op == "bias_add"
        weights = self._constant(w.transpose(3, 2, 0, 1), f"{node.name}/w")
        inputs = [self._at(node.inputs[0]), weights]
        if biased:
            inputs.append(self._constant(self._value(users[0].inputs[1]), f"{node.name}/b"))
        window = self._window(node, (w.shape[0], w.shape[1]))
        return self._add("Conv", node, *inputs, group=groups, **window)

    def _conv2d(self, node: Node) -> str:
        w = self._value(node.inputs[1])
        channels = (self.graph.types[node.inputs[0]].shape or ())[-1]
        return self._convolved(node, w, int(channels or 1) // w.shape[2])

    def _depthwise_conv2d(self, node: Node) -> str:
        w = self._value(node.inputs[1])
        height, width, channels, times = w.shape
        return self._convolved(node, w.reshape(height, width, 1, channels * times), channels)

    def _bias_add(self, node: Node) -> str:
        before = self.graph.producer(node.inputs[0])
        if before.op in ("conv2d", "depthwise_conv2d"):  # written together with the layer
            return self.made[node.inputs[0]]
        bias = self._value(node.inputs[1])
        shape = (-1, 1, 1) if self._rank(node.name) == 4 else (-1,)
        return self._add(
            "Add", node, self._at(node.inputs[0]), self._constant(bias.reshape(shape), node.name)
        )

    def _mul(self, node: Node) -> str:
        """A constant with a number for each channel is [channels, 1, 1] in NCHW."""
        factors = []
        for value in node.inputs:
            constant = self.graph.constant(value)
            if constant is not None and constant.ndim == 1 and self._rank(node.name) == 4:
                factors.append(self._constant(constant.reshape(-1, 1, 1), f"{node.name}/{value}"))
            else:
                factors.append(self._at(value))
        return self._add("Mul", node, *factors)

    def _batch_norm(self, node: Node) -> str:
        return self._add("BatchNormalization", node, *map(self._at, node.inputs), **node.attrs)

    def _relu6(self, node: Node) -> str:
        ends = (self._constant(np.float32(v), f"{node.name}/{v}") for v in (0, 6))
        return self._add("Clip", node, self._at(node.inputs[0]), *ends)

    def _pad(self, node: Node) -> str:
        """Zeros around an image become the padding of the next op."""
        attrs = node.typed(PaddingAttrs)
        if attrs.value or attrs.mode != "constant":
            raise UnsupportedError("its padding is not 0", node=node.name)
        self.pads[node.name] = np.asarray(attrs.paddings)[1:3]
        return self._at(node.inputs[0])

    def _max_pool(self, node: Node) -> str:
        # Padding with 0 is correct after a `pad`, because all values are above 0 there (ReLU).
        window = self._window(node, node.typed(PoolAttrs).ksize)
        return self._add("MaxPool", node, self._at(node.inputs[0]), **window)

    def _avg_pool(self, node: Node) -> str:
        window = self._window(node, node.typed(PoolAttrs).ksize)
        if any(window["pads"]):
            raise UnsupportedError("an average with padding", node=node.name)
        return self._add("AveragePool", node, self._at(node.inputs[0]), **window)

    def _mean(self, node: Node) -> str:
        attrs = node.typed(ReductionAttrs)
        if attrs.axes != (1, 2):
            raise UnsupportedError(f"a mean over {attrs.axes}", node=node.name)
        pooled = self._add("GlobalAveragePool", node, self._at(node.inputs[0]))
        return pooled if attrs.keepdims else self._add("Flatten", node, pooled)

    def _squeeze(self, node: Node) -> str:
        return self._add("Flatten", node, self._at(node.inputs[0]))

    def _reshape(self, node: Node) -> str:
        before, value = self.graph.types[node.inputs[0]].shape or (), self._at(node.inputs[0])
        if self._rank(node.name) != 2:
            raise UnsupportedError(f"a reshape to {node.typed(TargetAttrs).shape}", node=node.name)
        if len(before) == 4 and (before[1], before[2]) != (1, 1):
            value = self._add("Transpose", node, value, perm=(0, 2, 3, 1))
        return self._add("Flatten", node, value)

    def _softmax(self, node: Node) -> str:
        return self._add("Softmax", node, self._at(node.inputs[0]), axis=-1)
