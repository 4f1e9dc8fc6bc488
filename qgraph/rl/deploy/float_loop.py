"""C for the float ops of a policy: those before its integer program, and those behind it.

Each op becomes one statement on float32, in a loop over the elements of the result, and computes
what numpy does for the integer reference: one rounding for each op, no function of a library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph, Node
from qgraph.ir.ops import op_definition
from qgraph.ir.reading import kind_of
from qgraph.ir.types import Array
from qgraph.names import Namespace

Index = npt.NDArray[np.int64]  # an element of a value for each element of the loop
OPERATORS: Mapping[str, str] = {
    "add": "{0} + {1}",
    "bias_add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "larger({0}, {1})",
    "minimum": "smaller({0}, {1})",
    "relu": "larger({0}, 0.0f)",
    "relu6": "smaller(larger({0}, 0.0f), 6.0f)",
    "neg": "-{0}",
    "cast": "(float)({0})",
    "identity": "{0}",
}
MOVES = ("reshape", "transpose", "slice")  # ops that only choose elements


@dataclass(frozen=True)
class FloatSource:
    """A value that the loop reads: its shape without the batch, and C for an element of it."""

    shape: tuple[int, ...]
    element: Callable[[str], str]


@dataclass
class FloatArrays:
    """Constant arrays of the file, float32 by name."""

    names: Namespace
    held: dict[str, Array] = field(default_factory=dict)

    def element(self, values: Array, wanted: str) -> str:
        """C for element i of an array: a number if all are equal, else from an array that repeats.

        values: float32 [n].
        """
        if not np.isfinite(values).all():
            raise UnsupportedError(
                "a constant that is not finite",
                node=wanted,
                hint="leave bounds that are infinite out of the policy",
            )
        bits = values.view(np.uint32)
        if (bits == bits[0]).all():
            return float_literal(float(values[0]))
        period = _period(bits)
        shortest = values[:period]
        for name, array in self.held.items():
            if array.tobytes() == shortest.tobytes():
                return f"{name}[{_modulo(period, len(values))}]"
        name = self.names.fresh(wanted)
        self.held[name] = shortest
        return f"{name}[{_modulo(period, len(values))}]"

    def definitions(self) -> list[str]:
        """The arrays as C."""
        return [
            f"static const float {name}[{len(array)}] = {{\n    "
            + ",\n    ".join(float_literal(float(x)) for x in array)
            + "};"
            for name, array in self.held.items()
        ]


class FloatLoop:
    """Writes the statements that compute element `i` of a value.

    Args:
        graph: The graph of the policy.
        sources: The values that are given, by name.
        arrays: Takes the constants.
        names: Names of local variables.

    Raises:
        UnsupportedError: An op is not elementwise, or computes in another type than float32.
    """

    def __init__(
        self,
        graph: Graph,
        sources: Mapping[str, FloatSource],
        arrays: FloatArrays,
        names: Namespace,
    ) -> None:
        self.lines: list[str] = []
        self._graph, self._sources, self._arrays, self._names = graph, sources, arrays, names
        self._written: dict[tuple[str, bytes], str] = {}

    def element(self, value: str) -> str:
        """C for element i of a value; what it needs is appended to `lines`."""
        return self._element(value, np.arange(np.prod(self._shape(value), dtype=np.int64)))

    def _shape(self, value: str) -> tuple[int, ...]:
        """The shape without the batch."""
        if value in self._sources:
            return self._sources[value].shape
        shape = self._graph.types[value].shape
        if shape is None or None in shape[1:]:
            raise UnsupportedError("its size is unknown", node=value)
        return tuple(int(size or 0) for size in shape[1:])

    def _element(self, value: str, index: Index) -> str:
        key = (value, index.tobytes())
        if key not in self._written:
            self._written[key] = self._new(value, index)
        return self._written[key]

    def _new(self, value: str, index: Index) -> str:
        if value in self._sources:
            source = self._sources[value]
            return source.element(_subscript(index, value))
        node = self._graph.producer(value)
        if node.op in MOVES:
            (source_name,) = node.inputs
            return self._element(source_name, _moved(node, self._shape(source_name))[index])
        if node.op == "concat" and len(self._shape(value)) == 1:
            return self._joined(node, index)
        if node.op not in OPERATORS:
            raise UnsupportedError(
                f"`{kind_of(node)}` is computed in float outside of the integer layers, and the C "
                "of a policy has no such op",
                node=node.name,
                hint="leave the op out of the policy; the head needs values or logits, not "
                "probabilities",
            )
        if self._graph.types[value].dtype != "float32":
            raise UnsupportedError(
                f"it is computed in {self._graph.types[value].dtype}, and the C of a policy "
                "computes in float32",
                node=node.name,
                hint="export the policy in float32",
            )
        operands = [self._operand(one, node, index) for one in node.inputs]
        name = self._names.fresh(node.name)
        self.lines.append(f"const float {name} = {OPERATORS[node.op].format(*operands)};")
        return name

    def _joined(self, node: Node, index: Index) -> str:
        """C for the element of vectors one after the other."""
        sizes = [self._shape(value)[0] for value in node.inputs]
        begins = np.cumsum([0, *sizes[:-1]])
        taken = np.searchsorted(begins, index, "right") - 1
        if (np.diff(taken) < 0).any():
            raise _other_order(node.name)
        found = [
            (int(np.searchsorted(taken, k)), self._element(value, _held(index - begin, size)))
            for k, (value, begin, size) in enumerate(zip(node.inputs, begins, sizes, strict=True))
            if (taken == k).any()
        ]
        text = found[0][1]
        for first, element in found[1:]:
            text = f"i < {first} ? ({text}) : {element}"
        name = self._names.fresh(node.name)
        self.lines.append(f"const float {name} = {text};")
        return name

    def _operand(self, value: str, node: Node, index: Index) -> str:
        """C for the element of an operand that an element of the result needs."""
        shape = (1, *self._shape(node.name))
        constant = self._graph.constant(value)
        if constant is not None:
            spread = np.broadcast_to(np.asarray(constant, np.float32), shape).reshape(-1)
            return self._arrays.element(np.ascontiguousarray(spread[index]), value)
        own = (1, *self._shape(value))
        places = np.arange(np.prod(own, dtype=np.int64)).reshape(own)
        return self._element(value, np.broadcast_to(places, shape).reshape(-1)[index])


def _moved(node: Node, shape: tuple[int, ...]) -> Index:
    """The element of its input that each element of a node is."""
    places = np.arange(np.prod(shape, dtype=np.int64)).reshape(1, *shape)
    evaluate = op_definition(node.op).evaluate
    assert evaluate is not None
    moved: Index = np.asarray(evaluate(node.attributes, [places])).reshape(-1)
    return moved


def _subscript(index: Index, value: str) -> str:
    """C for `index[i]`."""
    count, i = len(index), np.arange(len(index))
    if (index == index[0]).all():
        return str(index[0])
    period = _period(index)
    if (index[:period] == i[:period]).all():
        return _modulo(period, count)
    first = int(index[0])
    if (index == first + i).all():
        return f"i + {first}"
    each = int((index == first).sum())
    if (index == i // each).all():
        return f"i / {each}"
    ends = _ends_of_ramp(index)
    if ends is not None:
        begin, end = ends
        return f"(i < {begin} ? {first} : i < {end} ? i - {begin - first} : {index[-1]})"
    raise _other_order(value)


def _other_order(value: str) -> UnsupportedError:
    return UnsupportedError(
        "the C of a policy cannot choose its elements in this order",
        node=value,
        hint="leave transposes and slices of outputs out of the policy",
    )


def _held(index: Index, size: int) -> Index:
    """Indices within a part of `size` elements; those of other parts are at its ends."""
    return np.clip(index, 0, size - 1)


def _ends_of_ramp(index: Index) -> tuple[int, int] | None:
    """The first and the last place + 1 of indices that rise by one between two constant ends."""
    rising = np.flatnonzero(np.diff(index))
    if not len(rising) or (np.diff(index)[rising[0] : rising[-1] + 1] != 1).any():
        return None
    return int(rising[0]), int(rising[-1]) + 2


def _modulo(period: int, count: int) -> str:
    return "i" if period == count else f"i % {period}"


def _period(values: Array) -> int:
    """The smallest period of an array that divides its length."""
    count = len(values)
    divisors = (p for p in range(1, count + 1) if count % p == 0)
    return next(p for p in divisors if (values.reshape(-1, p) == values[:p]).all())


def float_literal(value: float) -> str:
    """A finite float32 as a C constant, exactly."""
    if value == int(value) and abs(value) < 2**24 and not (value == 0 and np.signbit(value)):
        return f"{int(value)}.0f" if value >= 0 else f"({int(value)}.0f)"
    text = f"{value.hex()}f"
    mantissa, _, exponent = text.partition("p")
    text = f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"
    return f"({text})" if text.startswith("-") else text
