"""The definition of an op of the graph, from which everything else about the op is derived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from qgraph.enums import StrEnum
from qgraph.errors import GraphError
from qgraph.ir.ops.attributes import MarkedAttrs
from qgraph.ir.types import Array, Codes, Fixed, Shape, TensorType
from qgraph.ops.attributes import Attributes
from qgraph.ops.reach import Ranged, Reach, reach_of_any

A = TypeVar("A", bound=Attributes)
Shapes = Sequence[Shape | None]


class Scale(Enum):
    """How an op changes the scale of codes."""

    FLOAT = "the result is float"
    KEPT = "the result is on the scale of the first input"
    SHARED = "all inputs are on one scale, and the result too"
    PRODUCT = "exponents add up"
    OWN = "the result is on the scale of `spec`"


@dataclass(frozen=True)
class FormatNames:
    """Ops of file formats that compute what an op of the graph computes, on the same inputs.

    Importers, exporters of float networks and arithmetic on shapes are derived from them; tables of
    a format only have what differs. of_integers: whether integers are also computed as in numpy;
    otherwise only floats are imported.
    """

    tensorflow: str = ""
    onnx: str = ""
    of_integers: bool = False


NO_FORMAT = FormatNames()


def can_be_negative(attrs: Attributes, inputs: Sequence[bool]) -> bool:
    return False


def never_negative(attrs: Attributes, inputs: Sequence[bool]) -> bool:
    return True


def as_its_inputs(attrs: Attributes, inputs: Sequence[bool]) -> bool:
    """Not negative if no input is negative."""
    return bool(inputs) and all(inputs)


def as_one_input(attrs: Attributes, inputs: Sequence[bool]) -> bool:
    """Not negative if at least one input is not negative."""
    return any(inputs)


def as_its_inputs_in_pools(attrs: MarkedAttrs, inputs: Sequence[bool]) -> bool:
    return attrs.pool and all(inputs)


def always(attrs: Attributes, shape: Shape) -> bool:
    return True


def reach_of_inputs(attrs: Attributes, inputs: Sequence[Ranged], shapes: Shapes) -> Reach:
    """The range of ops whose elements are elements of their inputs, or between them."""
    return reach_of_any(inputs)


class Elements(StrEnum):
    """The kinds of elements of tensors."""

    ANY = "any elements"
    NUMBERS = "numbers"
    FLOATS = "floats"
    BOOLS = "bools"

    def hold(self, kind: TensorType) -> bool:
        match self:
            case Elements.ANY:
                return True
            case Elements.NUMBERS:
                return kind.dtype not in ("bool", "string")
            case Elements.FLOATS:
                return kind.is_float
            case Elements.BOOLS:
                return kind.dtype == "bool"


@dataclass(frozen=True)
class OpDef(Generic[A]):
    """The definition of one op. Rules receive the attributes, as an instance of `attributes`.

    arity: the fewest and the most inputs, None for any number. infer: the type of the output, or
    those of several. evaluate: the float reference in numpy, in the dtype of its inputs.

    integer: the integer reference on codes, None where the op exists in float only. scale: the
    scale of its results. reach: the range of its results from the ranges and shapes of the inputs.

    nonnegative: whether no element of the result is negative, given this for each input.

    moves: elements of the result are elements of the inputs, or 0; codes pass through unchanged.
    elementwise: each element depends only on elements at its position. pointwise: a function of one
    tensor that may become a table. layer: sums of products with weights, the second input.

    separate: whether the samples of a batch, along the first axis of the first input that varies,
    stay separate and in order, from the shape of that input. Elementwise ops need no rule.

    formats: the names of the op in file formats that have it.

    takes: the kinds of elements that inputs may have.

    in_place: `evaluate` with the result in the memory of the first input. owns: the result of
    `evaluate` is in memory of its own, never a view of an input.
    """

    name: str
    arity: tuple[int, int | None]
    attributes: type[A]
    infer: Callable[[A, Sequence[TensorType]], TensorType | tuple[TensorType, ...]]
    evaluate: Callable[[A, Sequence[Array]], Any] | None = None
    integer: Callable[[A, Sequence[Fixed]], Fixed] | None = None
    scale: Scale = Scale.FLOAT
    reach: Callable[[A, Sequence[Ranged], Shapes], Reach] | None = None
    nonnegative: Callable[[A, Sequence[bool]], bool] = can_be_negative
    moves: bool = False
    elementwise: bool = False
    pointwise: bool = False
    layer: bool = False
    separate: Callable[[A, Shape], bool] | None = None
    formats: FormatNames = NO_FORMAT
    takes: Elements = Elements.ANY
    in_place: Callable[[A, Sequence[Array]], Array] | None = None
    owns: bool = False

    def __post_init__(self) -> None:
        if self.integer is None:
            return
        missing = [] if self.scale is not Scale.FLOAT else ["scale"]
        missing += [] if self.reach is not None else ["reach"]
        if missing:
            raise GraphError(
                f"op `{self.name}` has an integer rule and no {' and no '.join(missing)}",
                hint="complete its definition in qgraph/ir/ops",
            )

    @property
    def same_scale(self) -> bool:
        """Whether all inputs have to be on one scale."""
        return self.scale is Scale.SHARED

    def keeps_samples(self, attrs: A, shape: Shape) -> bool:
        """Whether samples stay separate and in order in an op with one input that varies."""
        if self.separate is not None:
            return self.separate(attrs, shape)
        return self.elementwise and self.arity == (1, 1)

    @property
    def keeps_scale(self) -> bool:
        """Whether codes keep their scale."""
        return self.scale in (Scale.KEPT, Scale.SHARED)

    def types(self, attrs: A, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        """Output types. Raises GraphError where the number of inputs or their types do not fit."""
        low, high = self.arity
        if len(inputs) < low or (high is not None and len(inputs) > high):
            expected = str(low) if low == high else f"{low} to {high or 'any number of'}"
            raise GraphError(f"takes {expected} inputs, found {len(inputs)}")
        for kind in inputs:
            if not self.takes.hold(kind):
                raise GraphError(f"takes {self.takes}, found {kind}")
        found = self.infer(attrs, inputs)
        return found if isinstance(found, tuple) else (found,)


# An op of any attributes.
AnyOp: TypeAlias = OpDef[Any]


def axis_of(axis: int, rank: int) -> int:
    """An axis, counted from the front. Raises GraphError where a tensor of `rank` lacks it."""
    if not -rank <= axis < rank:
        raise GraphError(f"axis {axis} does not exist in a tensor of rank {rank}")
    return axis % rank


def image_sizes(x: TensorType) -> Shape:
    """Batch, height, width and channels. Raises GraphError for a tensor of another rank."""
    if x.shape is None or len(x.shape) != 4:
        raise GraphError(f"needs an NHWC tensor of rank 4, found {x}")
    return x.shape


def same_as_first(attrs: Attributes, inputs: Sequence[TensorType]) -> TensorType:
    return inputs[0]


def broadcast_shapes(shapes: Sequence[Shape | None]) -> Shape | None:
    """Numpy broadcasting with unknown dimensions. Raises GraphError for shapes that differ."""
    if any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    rank = max(len(shape) for shape in known)
    padded = [(1,) * (rank - len(shape)) + shape for shape in known]
    result: list[int | None] = []
    for dims in zip(*padded, strict=True):
        fixed = {d for d in dims if d is not None and d != 1}
        if len(fixed) > 1:
            raise GraphError(f"shapes do not broadcast: {known}")
        result.append(fixed.pop() if fixed else (None if None in dims else 1))
    return tuple(result)


def broadcast(attrs: Attributes, inputs: Sequence[TensorType]) -> TensorType:
    """Type rule of elementwise ops: one dtype, broadcast shapes."""
    dtypes = {t.dtype for t in inputs}
    if len(dtypes) > 1:
        raise GraphError(f"inputs have different dtypes: {sorted(dtypes)}")
    return TensorType(inputs[0].dtype, broadcast_shapes([t.shape for t in inputs]))


def one_scale(inputs: Sequence[Fixed]) -> int | Codes:
    """The exponent that all inputs share. Raises GraphError if they do not."""
    first = inputs[0].exponent
    if any(not np.array_equal(first, other.exponent) for other in inputs[1:]):
        raise GraphError(f"inputs are on different scales: {[str(i.exponent) for i in inputs]}")
    return first


def moved(evaluate: Callable[[A, Sequence[Array]], Array]) -> Callable[[A, Sequence[Fixed]], Fixed]:
    """The integer rule of an op that only moves values: the same motion, on codes."""

    def integer(attrs: A, inputs: Sequence[Fixed]) -> Fixed:
        codes: Codes = evaluate(attrs, [i.codes for i in inputs])
        return Fixed(codes, one_scale(inputs))

    return integer
