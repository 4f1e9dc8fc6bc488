"""Small tensors with unknown elements, such as shapes that the graph computes.

`Reshape(x, Pack(Shape(x)[0], 1024))` with an unknown batch has the target `[?, 1024]`. The
evaluators here carry such tensors through the ops that graphs use for shape arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from qgraph.frontends.inexpressible import Inexpressible
from qgraph.ir.ops import OPS
from qgraph.ir.ops.base import AnyOp
from qgraph.ir.types import Array

MAX_TRACKED = 1024
Evaluate = Callable[[object, "Sequence[Partial]"], "Partial"]


@dataclass(frozen=True)
class Partial:
    """`unknown` holds None where the element of `values` is known, else a name for it.

    Elements of the same name are equal; the empty name is any number.
    """

    values: Array
    unknown: npt.NDArray[np.object_]

    @classmethod
    def known(cls, values: object) -> Partial:
        array = np.asarray(values)
        return cls(array, np.full(array.shape, None, object))

    @property
    def complete(self) -> bool:
        return not self.missing.any()

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.unknown != np.array(None, object), bool)

    def moved(self, motion: Callable[[Array], Array]) -> Partial:
        """The same motion of values and of the names of unknown elements."""
        return Partial(np.asarray(motion(self.values)), np.asarray(motion(self.unknown), object))


def worth_tracking(value: Array) -> bool:
    """True for integers and booleans, as in shapes, and for single floats that scale them."""
    return value.size <= MAX_TRACKED and (
        value.dtype.kind in "iub" or (value.dtype.kind == "f" and value.ndim == 0)
    )


def small_constants(constants: Iterable[Array | None]) -> list[Partial | None]:
    """Constants for shape inference; only small ones can determine a shape."""
    return [None if c is None or c.size > MAX_TRACKED else Partial.known(c) for c in constants]


def joint_shape(args: Iterable[Partial]) -> tuple[int, ...]:
    """The shape that tensors broadcast to. Raises Inexpressible where it is not small.

    Small tensors can make a large one: (1024, 1) and (1, 1024), and so on with each axis.
    """
    try:
        shape = np.broadcast_shapes(*(a.values.shape for a in args))
    except ValueError:
        raise Inexpressible from None
    if math.prod(shape) > MAX_TRACKED:
        raise Inexpressible
    return shape


def elementwise(
    function: Callable[..., Array], args: Sequence[Partial], dtype: str | None = None
) -> Partial:
    joint_shape(args)
    with np.errstate(all="ignore"):
        values = np.asarray(function(*(a.values for a in args)))
    missing = args[0].missing
    for other in args[1:]:
        missing = missing | other.missing
    anonymous = _anonymous(np.broadcast_to(missing, values.shape))
    return Partial(values.astype(dtype or args[0].values.dtype), anonymous)


def plain_arithmetic(file_format: str) -> Iterator[tuple[str, Evaluate]]:
    """Functions of one tensor of integers, by the name that a format has for them.

    file_format: a field of `FormatNames`.
    """
    for op in OPS.values():
        name = str(getattr(op.formats, file_format))
        if name and op.formats.of_integers and op.elementwise and op.arity == (1, 1):
            yield name, partial(_evaluated, op)


def _evaluated(op: AnyOp, site: object, args: Sequence[Partial]) -> Partial:
    evaluate = op.evaluate
    assert evaluate is not None
    return elementwise(lambda x: evaluate(op.attributes(), [x]), args)


def reduced(
    function: Callable[..., Array], x: Partial, axes: tuple[int, ...], keepdims: bool
) -> Partial:
    values = np.asarray(function(x.values, axis=axes, keepdims=keepdims), x.values.dtype)
    some: Callable[..., Array] = np.any
    missing = some(x.missing, axis=axes, keepdims=keepdims)
    return Partial(values, _anonymous(np.asarray(missing)))


def _anonymous(missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.object_]:
    unknown = np.full(missing.shape, None, object)
    unknown[missing] = ""
    return unknown


def joined(parts: Sequence[Partial], join: Callable[[Sequence[Array]], Array]) -> Partial:
    """Concatenation or stacking of values and of the names of unknown elements."""
    values = np.asarray(join([p.values for p in parts]))
    return Partial(values, np.asarray(join([p.unknown for p in parts]), object))
