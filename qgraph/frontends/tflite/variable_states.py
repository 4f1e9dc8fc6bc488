"""Variables of the network, which keep values from run to run.

A variable that the network reads before it assigns it is a state: an input, and an output with its
next value. Its first value comes from the subgraph that `CALL_ONCE` runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from qgraph.errors import GraphError, LoadError, QGraphError, UnsupportedError, first_line
from qgraph.frontends.tflite.model import (
    DAMAGED,
    HINT,
    LiteModel,
    LiteOperator,
    LiteSubgraph,
    decoded,
)
from qgraph.frontends.tflite.tensors import LiteTensor, same_scale

HANDLE, READ, ASSIGN, ONCE = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"
VARIABLES = (HANDLE, READ, ASSIGN, ONCE)
STATE_HINT = "convert one step with its states as inputs and outputs (docs/streaming.md)"


@dataclass(frozen=True)
class LiteVariable:
    """A state: the tensors with its value before and after a run."""

    name: str
    before: int
    after: int


@dataclass
class _Network:
    """The network while its variables are replaced by tensors."""

    model: LiteModel
    tensors: list[LiteTensor]
    values: dict[int, int] = field(default_factory=dict)  # tensors that others are copies of
    handles: dict[int, str] = field(default_factory=dict)  # names of variables
    first: dict[str, LiteTensor] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)

    def replaced(self) -> tuple[LiteSubgraph, list[LiteVariable]]:
        network, left = self.model.network, list[LiteOperator]()
        for operator in network.operators:
            if operator.op == ONCE:
                self._begin(operator)
            elif operator.op == HANDLE:
                self.handles[_output(operator)] = _name(operator)
            elif operator.op == READ:
                self._read(operator)
            elif operator.op == ASSIGN:
                self._assign(operator)
            else:
                left.append(replace(operator, inputs=self._current(operator.inputs)))
        states = [
            LiteVariable(name, index, self.after[name])
            for name, index in self.before.items()
            if self.after.get(name, index) != index
        ]
        self._set_first({state.name for state in states})
        inputs = (*network.inputs, *(state.before for state in states))
        outputs = self._current(network.outputs)
        return LiteSubgraph(tuple(self.tensors), tuple(left), inputs, outputs), states

    def _current(self, indices: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.values.get(i, i) for i in indices)

    def _begin(self, operator: LiteOperator) -> None:
        """Note the values that variables have before the first run."""
        number = 0 if operator.options is None else operator.options.InitSubgraphIndex()
        if not 0 < number < len(self.model.subgraphs):
            raise GraphError(f"`{ONCE}` of subgraph {number}")
        graph, handles = self.model.subgraphs[number], dict[int, str]()
        for inner in graph.operators:
            if inner.op == HANDLE:
                handles[_output(inner)] = _name(inner)
                continue
            given = inner.inputs[1] if len(inner.inputs) > 1 else -1
            value = graph.tensors[given] if given >= 0 else None
            if inner.op != ASSIGN or value is None or not value.is_constant:
                raise UnsupportedError(
                    f"operator `{inner.op}` computes the first value of a variable",
                    hint=STATE_HINT,
                )
            self.first[_variable(inner, handles)] = value

    def _read(self, operator: LiteOperator) -> None:
        name, made = _variable(operator, self.handles), _output(operator)
        held = self.after.get(name, self.before.setdefault(name, made))
        self._check(name, made, held)
        if made != held:
            self.values[made] = held

    def _assign(self, operator: LiteOperator) -> None:
        name = _variable(operator, self.handles)
        if len(operator.inputs) < 2 or operator.inputs[1] < 0:
            raise GraphError(f"`{ASSIGN}` has no value", node=name)
        (given,) = self._current(operator.inputs[1:2])
        if name in self.before:
            self._check(name, given, self.before[name])
        self.after[name] = given

    def _check(self, name: str, one: int, other: int) -> None:
        """Codes stay as they are in a variable, so they must have one scale."""
        a, b = self.tensors[one], self.tensors[other]
        if a.kind != b.kind or not same_scale(a.scale, b.scale):
            raise UnsupportedError(
                "this variable is assigned with another type or scale than it is read with",
                node=name,
                hint=STATE_HINT,
            )

    def _set_first(self, states: set[str]) -> None:
        """Name the inputs of states; variables that never change become constants."""
        for name, index in self.before.items():
            tensor, first = self.tensors[index], self.first.get(name)
            if first is None:
                raise UnsupportedError(
                    "this variable is read before it has a value", node=name, hint=STATE_HINT
                )
            if first.kind != tensor.kind or not same_scale(first.scale, tensor.scale):
                raise GraphError("its first value has another type or scale", node=name)
            if name not in states:
                self.tensors[index] = replace(first, name=name)
            elif decoded(first, name).any():
                raise UnsupportedError(
                    "the first value of this variable is not zero; states begin with zeros",
                    node=name,
                    hint=STATE_HINT,
                )
            else:
                self.tensors[index] = replace(tensor, name=name)


def without_variables(model: LiteModel) -> tuple[LiteModel, list[LiteVariable]]:
    """The model with tensors instead of variables, and those that are states.

    Raises GraphError or UnsupportedError, with the name of the variable.
    """
    if not any(operator.op in VARIABLES for operator in model.network.operators):
        return model, []
    replaced = _Network(model, [*model.network.tensors])
    try:
        network, states = replaced.replaced()
    except QGraphError:
        raise
    except Exception as error:  # the schema's functions may raise anything on a damaged file
        raise LoadError(f"{DAMAGED}: {first_line(error)}", hint=HINT) from None
    outputs = {public: replaced.values.get(i, i) for public, i in model.outputs.items()}
    return replace(model, subgraphs=(network, *model.subgraphs[1:]), outputs=outputs), states


def _name(operator: LiteOperator) -> str:
    options = operator.options
    found = b"" if options is None else options.SharedName() or b""
    return found.decode() or "variable"


def _output(operator: LiteOperator) -> int:
    if len(operator.outputs) != 1 or operator.outputs[0] < 0:
        raise GraphError(
            f"`{operator.op}` has {len(operator.outputs)} outputs, or omits its output"
        )
    return operator.outputs[0]


def _variable(operator: LiteOperator, handles: dict[int, str]) -> str:
    name = handles.get(operator.inputs[0]) if operator.inputs else None
    if name is None:
        raise _unknown(operator)
    return name


def _unknown(operator: LiteOperator) -> QGraphError:
    return UnsupportedError(
        f"operator `{operator.op}` on a variable that is not named in the network", hint=STATE_HINT
    )
