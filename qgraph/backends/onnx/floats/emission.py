"""State of the lowerings of float ops: the model, and the ONNX name of each value.

A value of rank 4 is in NHWC, as in the graph, or in NCHW, as in ONNX's layers. The other layout is
written as a Transpose when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from qgraph.backends.onnx.builder import OnnxModelBuilder, element_type
from qgraph.backends.onnx.layouts import axis_in, turned
from qgraph.errors import UnsupportedError
from qgraph.foreign import AttrValue
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.types import Array, Shape, TensorType
from qgraph.names import Namespace
from qgraph.ops.movement import TO_NCHW, TO_NHWC

SIZES_HINT = "give the sizes of inputs, like --input-shape image=?,224,224,3"


class FloatEmission:
    """The model, the constants by value, and for all other values their ONNX names.

    `inputs` has the model's names of inputs, `fused` the bias that is one ONNX node with its layer,
    by the layer's name.
    """

    def __init__(
        self,
        graph: Graph,
        model: OnnxModelBuilder,
        inputs: Mapping[str, str],
        fused: Mapping[str, Node],
    ) -> None:
        self.graph, self.model, self.inputs, self.fused = graph, model, inputs, fused
        self.names = Namespace(taken=graph.types)  # names of further values
        self.types: dict[str, TensorType] = dict(graph.types)
        self.constants: dict[str, Array] = {}
        self.held: dict[str, dict[bool, str]] = {}

    # -- values ------------------------------------------------------------------------------

    def put(self, value: str, name: str, nchw: bool = False) -> None:
        """Record that `name` contains `value`, in NCHW or in the layout of the graph."""
        self.held.setdefault(value, {})[nchw] = name

    def get(self, value: str, nchw: bool = False) -> str:
        """The ONNX name of a value, transposed if needed."""
        if value in self.constants:
            array = self.constants[value]
            return self.model.constant(turned(array) if nchw else array, value)
        held = self.held[value]
        if nchw not in held:
            perm = TO_NCHW if nchw else TO_NHWC
            stem = f"{value}/{'NCHW' if nchw else 'NHWC'}"
            held[nchw] = self.model.add("Transpose", [held[not nchw]], stem, perm=perm)
        return held[nchw]

    def made_nchw(self, value: str) -> bool:
        """Whether a value exists in NCHW only."""
        return value in self.held and False not in self.held[value]

    def alias(self, value: str, source: str) -> None:
        """Record that `value` equals `source`."""
        if source in self.constants:
            self.constants[value] = self.constants[source]
        else:
            self.held[value] = self.held[source]

    def shape(self, value: str, node: Node) -> Shape:
        """Raises UnsupportedError if the rank is unknown."""
        shape = self.types[value].shape
        if shape is None:
            raise UnsupportedError(
                f"the rank of `{value}` is unknown", node=node.name, hint=SIZES_HINT
            )
        return shape

    def sizes(self, value: str, axes: tuple[int, ...], node: Node) -> tuple[int, ...]:
        """The sizes of some axes. Raises UnsupportedError if one is open."""
        shape = self.shape(value, node)
        found = [shape[axis] for axis in axes]
        if None in found:
            raise UnsupportedError(
                f"`{node.op}` needs sizes that are open in {self.types[value]}",
                node=node.name,
                hint=SIZES_HINT,
            )
        return tuple(size for size in found if size is not None)

    def dtype(self, value: str) -> np.dtype[np.generic]:
        return np.dtype(self.types[value].dtype)

    def bias_of(self, layer: Node) -> Array:
        """The numbers of the bias that is one node with its layer."""
        bias = self.graph.constant(self.fused[layer.name].inputs[1])
        assert bias is not None
        return bias

    # -- nodes -------------------------------------------------------------------------------

    def numbers(self, values: npt.ArrayLike, stem: str, dtype: npt.DTypeLike = np.int64) -> str:
        """A constant."""
        return self.model.constant(np.asarray(values, dtype), stem)

    def scalar(self, number: float, like: str) -> str:
        """A number in the type of a value."""
        return self.numbers(number, f"{like}/number", self.dtype(like))

    def op(self, op: str, *inputs: str, stem: str, **attrs: AttrValue) -> str:
        return self.model.add(op, inputs, stem, **attrs)

    def cast(self, name: str, dtype: str, stem: str) -> str:
        return self.op("Cast", name, stem=stem, to=element_type(dtype))

    def emit(self, node: Node, lower: Callable[[FloatEmission, Node], None]) -> None:
        """Write an additional node on values that were written before."""
        inputs = [self.types[value] for value in node.inputs]
        (self.types[node.name],) = op_definition(node.op).types(node.attributes, inputs)
        lower(self, node)

    def common_layout(self, *values: str) -> bool:
        """The layout for elementwise ops on several values: NCHW if one exists in NCHW only.

        Values of other ranks than 4 are in NHWC, and so are values combined with them, except
        constants.
        """
        varying = [v for v in values if v not in self.constants]
        ranks = {self.types[v].rank for v in varying}
        small = all((self.types[v].rank or 0) <= 4 for v in values)
        return ranks == {4} and small and any(map(self.made_nchw, varying))

    def axes(self, axes: Sequence[int], value: str, nchw: bool) -> list[int]:
        """Axes of a value, from 0, as they are in the layout."""
        rank = self.types[value].rank or 1
        return [axis_in(axis % rank, nchw) for axis in axes]
