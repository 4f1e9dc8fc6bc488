"""Parts of an integer program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.types import Array, Exponent, QuantSpec, Role
from qgraph.ops.attributes import Attributes, attributes_for
from qgraph.program.ops import OPS, OpClass, Operand, program_op
from qgraph.program.ops.base import A, AnyProgramOp

NOTHING: Mapping[str, object] = MappingProxyType({})


def storage(low: int, high: int) -> str:
    """The smallest numpy integer that holds every code of `low..high`."""
    kinds = ("uint8", "uint16", "uint32") if low >= 0 else ("int8", "int16", "int32")
    return next((k for k in kinds if np.iinfo(k).min <= low and high <= np.iinfo(k).max), "int64")


@dataclass(frozen=True)
class Tensor:
    """Codes: `value = code * 2^-exponent`, with one exponent or one for each last index.

    `shape` has numbers only; 1 stands for a free batch. Codes are in `low..high`; `magnitude`
    bounds the partial sums of their computation, in any order.
    """

    name: str
    shape: tuple[int, ...]
    low: int
    high: int
    magnitude: int
    exponent: Exponent

    @property
    def storage(self) -> str:
        """The smallest numpy integer that holds every code."""
        return storage(self.low, self.high)


@dataclass(frozen=True, init=False)
class Step:
    """One op of a program; `qgraph.program.ops` defines what each does.

    Attributes may be given as an instance of the op's class, or as values by name. Raises
    GraphError, naming the output, for an unknown op, a wrong number of inputs, and for attributes
    that are unknown or invalid.
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    attrs: Attributes

    def __init__(
        self,
        op: str,
        inputs: tuple[str, ...],
        output: str,
        attrs: Attributes | Mapping[str, object] = NOTHING,
    ) -> None:
        try:
            checked = _checked(program_op(op), len(inputs), attrs)
        except GraphError as error:
            message = f"{op}: {error.message}" if op in OPS else error.message
            raise GraphError(message, node=output, hint=error.hint) from None
        for name, value in (("op", op), ("inputs", inputs), ("output", output), ("attrs", checked)):
            object.__setattr__(self, name, value)

    @property
    def definition(self) -> AnyProgramOp:
        return OPS[self.op]

    @property
    def family(self) -> OpClass:
        return OPS[self.op].family

    def attrs_as(self, kind: type[A]) -> A:
        """The attributes, as an instance of `kind`. Raises GraphError for another class."""
        if not isinstance(self.attrs, kind):
            raise GraphError(f"{self.op}: has no {kind.__name__}", node=self.output)
        return self.attrs


def _checked(
    definition: AnyProgramOp, inputs: int, attrs: Attributes | Mapping[str, object]
) -> Attributes:
    if not definition.takes(inputs):
        wanted = ", ".join(definition.operands)
        raise GraphError(f"{inputs} inputs are given", hint=f"it takes {wanted}")
    checked: Attributes = attributes_for(definition.attributes, attrs)
    return checked


@dataclass(frozen=True)
class Entry:
    """Quantization of a float value of the graph, `source`, to the codes of `tensor`, by `spec`.

    `segment` is the number of float islands before it: 0 if `source` is computed from inputs alone,
    otherwise one more than the segment whose codes it is computed from.
    """

    tensor: str
    source: str
    spec: QuantSpec
    segment: int = 0

    @staticmethod
    def of_codes(tensor: Tensor) -> Entry:
        """An entry whose codes are given: it is its own source."""
        bits = max(1, (tensor.high - tensor.low).bit_length())
        return Entry(tensor.name, tensor.name, QuantSpec(bits, tensor.low < 0, Role.INPUT, 0))


@dataclass(frozen=True)
class Program:
    """Steps in order, from codes of entries to codes of exits.

    A network with float ops between integer layers has one program too: codes that are computed
    from these ops are entries, and `segments` gives the parts that run one after the other.

    `tensors` has every tensor by name, also constants. `batch_free`: every tensor except constants
    has a batch dimension in front, and no step mixes samples: N samples are run by replacing 1 with
    N. `blocks_free`: the same if each sample has several rows, for example if time steps are merged
    into the batch: N samples are N runs, the rows of one after those of the other.
    """

    name: str
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Array]
    entries: tuple[Entry, ...]
    exits: tuple[str, ...]
    steps: tuple[Step, ...]
    batch_free: bool
    blocks_free: bool = False

    @property
    def has_islands(self) -> bool:
        """Whether codes of entries are computed from codes of exits."""
        return any(entry.segment for entry in self.entries)

    def operands(self, step: Step) -> list[Operand]:
        """Properties of the inputs of a step."""
        return [self._operand(name) for name in step.inputs]

    def _operand(self, name: str) -> Operand:
        tensor = self.tensors[name]
        codes = self.constants.get(name)
        return Operand(tensor.shape, tensor.low, tensor.high, tensor.magnitude, codes)

    def __str__(self) -> str:
        """A line for each step, for readers and golden tests."""
        lines = [f"program {self.name}{' (any batch)' if self.batch_free else ''}"]
        lines += [f"  {self._typed(e.tensor)} = entry({e.source})" for e in self.entries]
        for step in self.steps:
            attrs = ", ".join(f"{key}={value}" for key, value in step.attrs.items())
            lines.append(
                f"  {self._typed(step.output)} = {step.op}({', '.join(step.inputs)})"
                f"{f' {{{attrs}}}' if attrs else ''}"
            )
        return "\n".join([*lines, f"  return {', '.join(self.exits)}", ""])

    def _typed(self, name: str) -> str:
        tensor = self.tensors[name]
        return f"{name}: {tensor.storage}{list(tensor.shape)}"
