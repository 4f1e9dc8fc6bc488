"""One operator while it is written as TensorFlow ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from qgraph.errors import GraphError, UnsupportedError
from qgraph.foreign import FlatObject
from qgraph.frontends.grids import Grid
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.lite_node import LiteNode
from qgraph.frontends.tflite.model import LiteOperator, LiteSubgraph
from qgraph.frontends.tflite.tensors import LiteTensor, dtype_of
from qgraph.ir.narrow_floats import widened_dtype
from qgraph.ir.types import Array, Shape

# Fused activation functions by number, as TensorFlow ops.
ACTIVATIONS: Mapping[int, str] = MappingProxyType(
    {1: "Relu", 2: "ReluN1To1", 3: "Relu6", 4: "Tanh"}
)
ACTIVATION_OPTION = "FusedActivationFunction"
PADDINGS = ("SAME", "VALID")
# Options about codes or speed, which do not change what a float network computes.
WITHOUT_EFFECT = frozenset(
    ("AsymmetricQuantizeInputs", "QuantizedBiasType", "PotScaleInt16", "InDataType", "NumSplits")
)


# A value after the quantizer of a tensor, where it has one.
Quantized: TypeAlias = Callable[["Translation", Ref, LiteTensor], Ref]


@dataclass(frozen=True)
class TensorNames:
    """TensorNames in use, and where the value of each tensor is."""

    taken: set[str]
    refs: Mapping[int, Ref]

    def free(self, stem: str) -> str:
        name, count = stem, 0
        while name in self.taken:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name


@dataclass(frozen=True)
class Translation:
    """`nodes` are the TensorFlow ops so far; the last one gets the operator's `name`."""

    name: str
    operator: LiteOperator
    tensors: tuple[LiteTensor, ...]
    names: TensorNames
    constants: Mapping[int, Callable[[], Array]]
    grids: dict[str, Grid]  # of constants, by node
    subgraphs: tuple[LiteSubgraph, ...]  # of the file
    quantized: Quantized
    nodes: list[LiteNode] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)  # notes for the user
    states: dict[str, Ref] = field(default_factory=dict)  # next values of inputs that are states

    # -- what the file has -------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.operator.inputs)

    def has(self, i: int) -> bool:
        return i < len(self) and self.operator.inputs[i] >= 0

    def input(self, i: int) -> Ref:
        """The value of input `i`. Raises GraphError where it is missing."""
        if not self.has(i):
            raise GraphError(f"`{self.operator.op}` has no input {i}", node=self.name)
        return self.names.refs[self.operator.inputs[i]]

    def inputs(self) -> list[Ref]:
        return [self.input(i) for i in range(len(self))]

    def tensor(self, i: int) -> LiteTensor:
        self.input(i)
        return self.tensors[self.operator.inputs[i]]

    def output(self, i: int = 0) -> LiteTensor:
        return self.tensors[self.operator.outputs[i]]

    def rank(self, i: int) -> int:
        return len(self.tensor(i).shape)

    def constant(self, i: int) -> Array | None:
        """Input `i` if it is a constant of the file; None if it is computed."""
        found = self.constants.get(self.operator.inputs[i]) if self.has(i) else None
        return None if found is None else found()

    def dtype(self, tensor: LiteTensor) -> str:
        return widened_dtype(dtype_of(tensor.kind, self.name))

    def option(self, name: str) -> FlatObject:
        """An option by its name in the schema. Raises GraphError where options are missing."""
        if self.operator.options is None:
            raise GraphError(f"`{self.operator.op}` has no options", node=self.name)
        self.read.add(name)
        return getattr(self.operator.options, name)()

    def optional(self, name: str, default: FlatObject = 0) -> FlatObject:
        return default if self.operator.options is None else self.option(name)

    def option_vector(self, name: str) -> tuple[int, ...] | None:
        """An option that is a vector; None where it is missing."""
        options = self.operator.options
        if options is None or getattr(options, f"{name}IsNone")():
            return None
        self.read.add(name)
        return tuple(int(i) for i in getattr(options, f"{name}AsNumpy")())

    def padding(self) -> str:
        found = self.option("Padding")
        if found not in range(len(PADDINGS)):
            raise GraphError(f"padding {found} is not in the schema", node=self.name)
        return PADDINGS[found]

    def unread(self) -> list[str]:
        """Options that matter and were not read."""
        options = self.operator.options
        if options is None:
            return []
        ignored = self.read | WITHOUT_EFFECT
        return [key for key in _keys(type(options)) if key not in ignored and _value(options, key)]

    # -- what is written ---------------------------------------------------------------------

    def emit(self, op: str, *inputs: Ref, **attrs: object) -> Ref:
        """One TensorFlow op; its first output."""
        name = self.names.free(f"{self.name}/{op}")
        self.nodes.append(LiteNode(name, op, inputs, (), None, attrs, self.operator.op))
        return name, 0

    def const(self, value: object, what: str) -> Ref:
        """A constant of this operator, named after what it is."""
        name = self.names.free(f"{self.name}/{what}")
        array = np.asarray(value)
        node = LiteNode(name, "Const", (), (), None, {"value": lambda: array}, self.operator.op)
        self.nodes.append(node)
        return name, 0

    def state(self, name: str, shape: Shape, dtype: str = "float32") -> Ref:
        """An input that is a state; `states` gets its next value."""
        made = self.names.free(name)
        attrs = {"dtype": dtype, "shape": shape}
        self.nodes.append(LiteNode(made, "Placeholder", (), (), None, attrs, self.operator.op))
        return made, 0

    def subgraph(self, option: str) -> LiteSubgraph:
        """The subgraph whose number an option has. Raises GraphError for other numbers."""
        number = self.option(option)
        if not 0 < number < len(self.subgraphs):
            raise GraphError(f"`{self.operator.op}` of subgraph {number}", node=self.name)
        return self.subgraphs[number]

    def weights(self, array: Array, i: int) -> Ref:
        """The constant of input `i` in another order; it has the same grid."""
        made = self.const(array, "weights")
        grid = self.grids.get(self.input(i)[0])
        if grid is not None:
            self.grids[made[0]] = grid
        return made

    def integers(self, values: object, what: str) -> Ref:
        return self.const(np.asarray(values, np.int32), what)

    def scalar(self, value: float, what: str) -> Ref:
        return self.const(np.float32(value), what)

    def has_activation(self) -> bool:
        """Whether the operator ends with a fused activation."""
        return hasattr(self.operator.options, ACTIVATION_OPTION) and bool(
            self.optional(ACTIVATION_OPTION)
        )

    def activated(self, value: Ref) -> Ref:
        """`value` after the fused activation."""
        number = self.optional(ACTIVATION_OPTION)
        if not number:
            return value
        if number not in ACTIVATIONS:
            raise UnsupportedError(f"fused activation {number}", node=self.name)
        return self.emit(ACTIVATIONS[number], value)

    def finished(self, value: Ref) -> list[LiteNode]:
        """All nodes; the one that computes `value` has the operator's name."""
        if not self.nodes or self.nodes[-1].name != value[0] or self.nodes[-1].op == "Const":
            self.emit("Identity", value)
        return [*self.nodes[:-1], replace(self.nodes[-1], name=self.name)]


def _keys(kind: type) -> list[str]:
    """The options that a class of the schema has."""
    names = [name for name in vars(kind) if name[:1].isupper()]
    others = ("Init", "AsNumpy", "IsNone", "Length", "BufferHasIdentifier")
    return [n for n in names if not n.startswith("GetRoot") and not n.endswith(others)]


def _value(options: FlatObject, key: str) -> bool:
    """Whether an option differs from zero, or from an empty vector."""
    length = getattr(options, f"{key}Length", None)
    return bool(length() if length is not None else getattr(options, key)())
