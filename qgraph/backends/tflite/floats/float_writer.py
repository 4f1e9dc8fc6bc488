"""Values of a float graph as tensors of a `.tflite` file, for one sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from qgraph.backends.tflite.arithmetic import TfliteArithmetic, TfliteExecutor
from qgraph.backends.tflite.flat_tables import FieldValue
from qgraph.backends.tflite.model_builder import TfliteModelBuilder
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Array
from qgraph.numerics import quantized_constant

# Operators that executors do not have for floats.
LACKED: Mapping[TfliteExecutor, frozenset[str]] = {
    TfliteExecutor.REFERENCE: frozenset({"CEIL", "ELU", "ROUND"}),
    TfliteExecutor.MICRO: frozenset({"GELU", "POW", "SIGN"}),
}

NOTHING: Mapping[str, FieldValue] = MappingProxyType({})


class FloatWriter:
    """Writes float operators; `held` has the tensor of each value that was written.

    graph: with known sizes, for one sample.
    """

    def __init__(
        self, graph: Graph, model: TfliteModelBuilder, arithmetic: TfliteArithmetic
    ) -> None:
        self.graph, self.model, self.arithmetic = graph, model, arithmetic
        self.micro = TfliteExecutor.MICRO in arithmetic.executors
        self.types = dict(graph.types)  # also of steps of a function
        self.held: dict[str, int] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}

    # -- values ------------------------------------------------------------------------------

    def put(self, value: str, tensor: int) -> None:
        self.held[value] = tensor
        self.shapes.setdefault(tensor, self.shape(value))

    def get(self, value: str) -> int:
        """The tensor of a value that was written, or of a constant."""
        if value not in self.held:
            array = self.graph.constant(value)
            node = self.graph.producer(value)
            if array is None and node.op == "quantize":
                known = self.graph.constant(node.inputs[0])
                array = None if known is None else quantized_constant(known, spec_of(node))
            if array is None:
                raise UnsupportedError("has no tensor in the file", node=value)
            self.put(value, self.constant(array, value))
        return self.held[value]

    def shape(self, value: str) -> tuple[int, ...]:
        """Raises UnsupportedError if a size is unknown."""
        known = self.types[value].shape
        if known is None or None in known:
            raise UnsupportedError(
                f"its size is unknown: {self.types[value]}",
                node=value,
                hint="give the sizes of inputs, like --input-shape image=?,224,224,3",
            )
        if 0 in known:
            raise UnsupportedError("has no elements", node=value)
        return tuple(int(size or 0) for size in known)

    def dtype(self, value: str) -> str:
        """Raises UnsupportedError for types that executors do not support."""
        kind = self.types[value].dtype
        kinds = ("float32", "int32", "bool", *(() if self.micro else ("int64",)))
        if kind not in kinds:
            raise UnsupportedError(
                f"has type {kind}, which {self.arithmetic.executors[-1]} does not support here",
                node=value,
            )
        return kind

    def check_float(self, value: str, node: Node) -> None:
        """Raise UnsupportedError for a value that is not float32."""
        if self.dtype(value) != "float32":
            raise UnsupportedError(
                f"TFLite has no `{node.op}` of {self.dtype(value)}", node=node.name
            )

    def constant(self, array: npt.ArrayLike, stem: str) -> int:
        held: Array = np.asarray(array)
        if held.dtype == np.float64:
            held = held.astype(np.float32)
        made = self.model.constant(stem, held)
        self.shapes[made] = held.shape
        return made

    def number(self, number: float, stem: str) -> int:
        return self.constant(np.float32(number), f"{stem}/number")

    def integers(self, numbers: npt.ArrayLike, stem: str) -> int:
        return self.constant(np.asarray(numbers, np.int32), stem)

    # -- operators ---------------------------------------------------------------------------

    def operator(
        self,
        op: str,
        inputs: Sequence[int],
        node: Node,
        options: str | None = None,
        version: int = 1,
        *,
        shape: Sequence[int] | None = None,
        dtype: str = "float32",
        more: Mapping[str, FieldValue] = NOTHING,
        **fields: FieldValue,
    ) -> int:
        """An operator with a new tensor as its result; by default it has the broadcast shape.

        more: further fields of its options.

        Raises UnsupportedError, naming the node, if an executor of the file does not have it.
        """
        for executor in self.arithmetic.executors:
            if op in LACKED.get(executor, ()):
                raise UnsupportedError(f"{executor} does not have {op}", node=node.name)
        if shape is None:
            shape = np.broadcast_shapes(*(self.shapes[value] for value in inputs))
        made = self.model.tensor(node.name, shape, dtype)
        self.shapes[made] = tuple(shape)
        return self.model.operator(op, inputs, made, options, version, **more, **fields)

    def unary(self, op: str, x: int, node: Node, options: str | None = None) -> int:
        return self.operator(op, [x], node, options)

    def binary(self, op: str, a: int, b: int, node: Node) -> int:
        """ADD, SUB, MUL or DIV."""
        return self.operator(op, [a, b], node, f"{op.capitalize()}Options")

    def reshaped(self, x: int, shape: Sequence[int], node: Node, dtype: str = "float32") -> int:
        if self.shapes[x] == tuple(shape):
            return x
        if not shape and self.micro:
            raise UnsupportedError("TFLM does not reshape to a scalar", node=node.name)
        sizes = np.asarray(shape, np.int32)
        inputs = [x, self.integers(sizes, f"{node.name}/shape")]
        return self.operator(
            "RESHAPE", inputs, node, "ReshapeOptions", shape=shape, dtype=dtype, NewShape=sizes
        )

    def copied(self, x: int, value: str) -> int:
        """Another tensor with the same elements."""
        shape, sizes = self.shape(value), np.asarray(self.shape(value), np.int32)
        made = self.model.tensor(value, shape, self.dtype(value))
        self.shapes[made] = shape
        inputs = [x, self.integers(sizes, f"{value}/shape")]
        return self.model.operator("RESHAPE", inputs, made, "ReshapeOptions", NewShape=sizes)


FloatLower = Callable[[FloatWriter, Node], int]
