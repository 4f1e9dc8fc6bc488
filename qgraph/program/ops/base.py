"""Definition of one op of the integer program; every table of ops is derived from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from qgraph.ir.types import Array, Codes
from qgraph.ops.attributes import Attributes, declarations
from qgraph.ops.reach import Reach
from qgraph.ops.shapes import Sizes
from qgraph.program.ops.layout import layout_of

Index = tuple[int, ...]


class OpClass(Enum):
    """How an op computes its result; backends choose loops by it."""

    PRODUCT = "sums of products"  # of an input with weights, the second operand
    MATRIX = "products of matrices"  # of two inputs that both vary
    ROW = "rows of channels"  # all channels of one position at a time
    BINARY = "two operands, element by element"
    UNARY = "one element at a time"
    REDUCTION = "a reduction over axes"
    MOVE = "moves elements"
    RESHAPE = "gives elements another shape"

    @property
    def pointwise(self) -> bool:
        """Whether each element depends on one element of each operand."""
        return self in (OpClass.BINARY, OpClass.UNARY)

    @property
    def row(self) -> bool:
        """Whether the op computes all channels of one position together."""
        return self in (OpClass.PRODUCT, OpClass.MATRIX, OpClass.ROW)

    @property
    def moves(self) -> bool:
        """Whether every element of the result is an element of an operand, or 0."""
        return self in (OpClass.MOVE, OpClass.RESHAPE)


@dataclass(frozen=True)
class Operand:
    """Properties of an input of a step, before its codes are known.

    Codes are in `low..high`; `magnitude` bounds the partial sums of their computation. `codes` are
    those of a constant, None for other tensors.
    """

    shape: Sizes
    low: int
    high: int
    magnitude: int
    codes: Array | None = None

    @property
    def constant(self) -> bool:
        return self.codes is not None


@dataclass(frozen=True)
class Manual:
    """The text of an op's entry in docs/integer_program.md.

    `shape`, `formula` and `reach` describe what the functions of the same name compute, so that
    the op can be implemented from the text alone. `overflow` describes numbers out of range,
    `samples` the condition of `separate`. `file` describes the attributes in a `.qgi` file if they
    are not stored one after the other.
    """

    summary: str
    shape: str
    formula: str
    reach: str
    overflow: str
    samples: str
    file: str = ""


A = TypeVar("A", bound=Attributes)


@dataclass(frozen=True)
class ProgramOp(Generic[A]):
    """One op. 4-D tensors are [batch, height, width, channels].

    code: its number in `.qgi` files, which never changes. operands: the names of inputs; a last
    name that ends in `...` stands for any number of inputs.

    shape: sizes of the result from those of the operands. Raises GraphError if they do not fit.
    compute: the reference, on int64 arrays. reach: the range of the result from those of the
    operands. separate: whether the samples of a batch, along the first axis, stay separate; its
    arguments are the operands and the shape of the result. sources: the elements that one element
    of the result is computed from, as (operand, index), given the codes of the operands.

    for_batch: the attributes for a given batch size, if they depend on it. file: the attributes in
    a `.qgi` file, in order, if these are not all in the order of declaration. numbers: the numbers
    in the file, if these are not the attributes themselves.
    """

    name: str
    code: int
    family: OpClass
    operands: tuple[str, ...]
    attributes: type[A]
    manual: Manual
    shape: Callable[[A, Sequence[Sizes]], Sizes]
    compute: Callable[[A, Sequence[Codes]], Codes]
    reach: Callable[[A, Sequence[Operand]], Reach]
    separate: Callable[[A, Sequence[Operand], Sizes], bool]
    sources: Callable[[A, Sequence[Codes], Index], list[tuple[int, Index]]]
    for_batch: Callable[[A, int], A] | None = None
    file: tuple[str, ...] | None = None
    numbers: Callable[[A, Sequence[Sizes]], list[int]] | None = None

    @property
    def variadic(self) -> bool:
        return self.operands[-1].endswith("...")

    @property
    def plain(self) -> bool:
        """Whether it has no attributes. It is then the graph's op of the same name, with the same
        operands unless qgraph/program/rules.py has a rule for it.
        """
        return not declarations(self.attributes)

    def takes(self, inputs: int) -> bool:
        """Whether a step of this op may have this number of inputs."""
        return inputs >= len(self.operands) if self.variadic else inputs == len(self.operands)

    @property
    def in_file(self) -> tuple[str, ...]:
        """The attributes that a `.qgi` file holds, in order."""
        if self.file is not None:
            return self.file
        return tuple(declared.name for declared in declarations(self.attributes))

    def file_numbers(self, attrs: A, shapes: Sequence[Sizes]) -> list[int]:
        """The numbers of a step in a `.qgi` file. shapes: of its inputs."""
        if self.numbers is not None:
            return self.numbers(attrs, shapes)
        layouts = layout_of(self.attributes)
        return [n for name in self.in_file for n in layouts[name].numbers(getattr(attrs, name))]


# An op of any attributes.
AnyProgramOp: TypeAlias = ProgramOp[Any]
