"""The files `NAME.h` and `NAME.c` of a deployed policy: float observations in, an action out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.backends.c.c_text import WIDTH, folded
from qgraph.backends.c.source import CUnit, Port
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Node
from qgraph.ir.types import Overflow, Rounding
from qgraph.names import KEYWORDS, USED, Namespace, comment, identifier
from qgraph.program import Entry, Tensor
from qgraph.program.islands import needed
from qgraph.program.layers import elements
from qgraph.rl.deploy.c_facts import CPolicyFacts
from qgraph.rl.deploy.float_loop import FloatArrays, FloatLoop, FloatSource, float_literal
from qgraph.rl.deploy.head_source import TANH, head_body, needs_tanh
from qgraph.rl.deploy.mask_source import words_of_masks
from qgraph.rl.deploy.network_policy import PolicyParts
from qgraph.rl.deploy.policy_templates import (
    CODE_OF,
    ENTER,
    FINITE,
    HEAD,
    HEADER,
    LARGER,
    LEAVE,
    SMALLER,
    SOURCE,
)
from qgraph.rl.deploy.state_source import RESET, RESET_DECLARED, STATIC_RESET, carried_states

OBSERVED = {"float32": "float", "uint8": "uint8_t"}  # types of observations in C
# Names in the generated file: of its variables and helpers, and behind `NAME_`.
LOCALS = {
    "mask",
    "choices",
    "value",
    "codes",
    "outputs",
    "action",
    "observation",
    "memory",
    "arena",
    "static_memory",
}
HELPERS = {
    "larger",
    "smaller",
    "code_of",
    "tanh_of",
    "static_memory",
    "code",
    "rest",
    "best",
    "arena",
}
OWN = (
    "reset",
    "reset_in",
    "codes",
    "outputs",
    "head",
    "act",
    "act_in",
    "memory",
    "observation",
    "action",
)
LARGEST_STEP = 100  # exponents up to this have steps that are normal float32, with room
EXACT = 2**24  # float32 holds integers up to this


@dataclass(frozen=True)
class PolicySource:
    """The texts of `NAME.h` and `NAME.c`."""

    header: str
    source: str
    facts: CPolicyFacts


def policy_source(parts: PolicyParts, net: CUnit, name: str) -> PolicySource:
    """Write a policy as C around its integer program `net`. Raises UnsupportedError."""
    return _PolicyWriter(parts, net, name).written()


class _PolicyWriter:
    def __init__(self, parts: PolicyParts, net: CUnit, name: str) -> None:
        self.parts, self.net, self.name = parts, net, name
        self.graph, self.program = parts.graph, parts.program
        # One name space for members, arrays and local variables: none hides another.
        self.names = Namespace(_local_name, {f"{name}_{word}" for word in OWN})
        self.entries, self.exits = (
            [Port(port.tensor, self.names.fresh(port.name)) for port in ports]
            for ports in (net.entries, net.exits)
        )
        self.arrays = FloatArrays(self.names)
        dtypes = {part.name: self.graph.types[part.name].dtype for part in parts.inputs}
        for input_name, dtype in dtypes.items():
            if dtype not in OBSERVED or dtype != dtypes[parts.inputs[0].name]:
                raise UnsupportedError(
                    f"observations of {dtype} have no form in C",
                    node=input_name,
                    hint="export the policy with observations of float32 or uint8, all of one type",
                )
        self.observed = OBSERVED[dtypes[parts.inputs[0].name]]
        self.states = carried_states(parts, self.entries, self.exits)
        read = _inputs_of(needed(self.graph, [parts.output], {*self.program.exits}))
        self.left = [port for port in self.exits if port.tensor in {parts.output, *read}]
        self.entered = [e for e in self.program.entries if e.source not in parts.states]

    def written(self) -> PolicySource:
        entries = [self._enter(i, e) for i, e in enumerate(self.entered)]
        leave, count = self._leave()
        self._mask = words_of_masks(self.name, self.parts.head, count)
        body = head_body(self.parts.head, count, self.arrays)
        stages = [*entries, leave, HEAD.format(**self._mask, name=self.name, body=body)]
        members, memory = self._memory(count)
        arrays = [array.codes for array in self.net.data] + [*self.arrays.held.values()]
        facts = CPolicyFacts(
            self.name,
            self.net.net,
            comment(self.program.name),
            self.parts.shape,
            self.observed,
            self.parts.head,
            count,
            tuple(self.parts.states),
            memory,
            self.net.arena,
            sum(array.nbytes for array in arrays),
        )
        words = facts.words()
        header = HEADER.format(
            **words,
            choices=f"#define {self.name.upper()}_ACTIONS {count}\n" if facts.discrete else "",
            rows=" (row by row, channels last)" if len(facts.shape) > 1 else "",
            members=members,
            reset=RESET_DECLARED.format(**words) if self.states else "",
            begin=(
                f"Its states begin with\n * {self.name}_reset_in."
                if self.states
                else "It needs no\n * initialization."
            ),
        )
        helpers = [LARGER] if any("larger(" in text for text in stages) else []
        helpers += [SMALLER] if any("smaller(" in text for text in stages) else []
        helpers += [TANH] if needs_tanh(self.parts.head) else []
        source = SOURCE.format(
            **words,
            helpers="\n".join([CODE_OF, *helpers]),
            arrays="\n".join([*self.arrays.definitions(), ""]) if self.arrays.held else "",
            stages="\n".join(stages),
            finite=FINITE.format(**words) if facts.floats else "",
            calls=self._calls(),
            **self._reset(words),
        )
        return PolicySource(header, _folded(source), facts)

    def _memory(self, count: int) -> tuple[str, int]:
        """The members of the memory, the widest type first, and its bytes."""
        ports = [(p.name, self.program.tensors[p.tensor]) for p in self._ports()]
        sizes = [(t.storage, n, elements(t)) for n, t in ports] + [("float", "outputs", count)]
        width = {kind: 4 if kind == "float" else np.dtype(kind).itemsize for kind, _, _ in sizes}
        sizes.sort(key=lambda one: -width[one[0]])
        lines = [f"    {self.net.net}_arena arena;"]
        for kind, name, size in sizes:
            lines.append(f"    {kind}{'' if kind == 'float' else '_t'} {name}[{size}];")
        used = self.net.arena + sum(width[kind] * size for kind, _, size in sizes)
        return "\n".join(lines), -(-used // 8) * 8

    def _ports(self) -> Sequence[Port]:
        return (*self.entries, *self.exits)

    # -- stages -------------------------------------------------------------------------------

    def _enter(self, number: int, entry: Entry) -> str:
        """The function that computes the codes of an entry from the observation."""
        tensor, spec = self.program.tensors[entry.tensor], entry.spec
        if (
            spec.rounding != Rounding.HALF_EVEN
            or spec.overflow != Overflow.SATURATE
            or not isinstance(spec.exponent, int)
            or abs(spec.exponent) > LARGEST_STEP
            or max(-spec.lo, spec.hi) > EXACT
        ):
            raise UnsupportedError(
                f"observations are quantized in a way that the C of a policy lacks: {spec}",
                node=entry.tensor,
                hint="quantize the policy again",
            )
        loop = self._loop(self._observed())
        value = loop.element(entry.source)
        lines = [*loop.lines, f"const float value = {value};"]
        return ENTER.format(
            function=self._entering(number),
            name=self.name,
            NAME=self.name.upper(),
            kind=tensor.storage,
            count=elements(tensor),
            lines=_indented(lines),
            steps=float_literal(2.0**spec.exponent),
            low=f"({spec.lo})" if spec.lo < 0 else spec.lo,
            high=spec.hi,
        )

    def _observed(self) -> dict[str, FloatSource]:
        """The parts of the observation, one after the other."""
        sources, at = dict[str, FloatSource](), 0
        for part in self.parts.inputs:
            before = f"{at} + " if at else ""
            sources[part.name] = FloatSource(part.shape, _element_of("observation", before))
            at += part.size
        return sources

    def _leave(self) -> tuple[str, int]:
        """The function that computes outputs from codes of exits, and the number of outputs."""
        sources = {
            port.tensor: self._source(port, self.program.tensors[port.tensor]) for port in self.left
        }
        loop = self._loop(sources)
        name = self.parts.output
        shape = self.graph.types[name].shape or ()
        count = int(np.prod([size or 1 for size in shape]))
        value = loop.element(name)
        kinds = {port.name: self.program.tensors[port.tensor].storage for port in self.left}
        text = LEAVE.format(
            name=self.name,
            parameters=", ".join(f"const {kind}_t *{port}" for port, kind in kinds.items()),
            count=count,
            lines=_indented([*loop.lines, f"outputs[i] = {value};"]),
        )
        return text, count

    def _source(self, port: Port, tensor: Tensor) -> FloatSource:
        """The float values of the codes of an exit."""
        exponents = np.asarray(tensor.exponent).reshape(-1)
        wide = max(-tensor.low, tensor.high) > EXACT
        if wide or np.abs(exponents).max() > LARGEST_STEP or exponents.size > 1:
            raise UnsupportedError(
                "its codes are too wide, or have a scale for each channel: the C of a policy "
                "cannot turn them into float",
                node=port.tensor,
                hint="quantize the policy again",
            )
        unit = float_literal(2.0 ** -int(exponents[0]))
        return FloatSource(tensor.shape[1:], lambda i: f"((float){port.name}[{i}] * {unit})")

    def _loop(self, sources: dict[str, FloatSource]) -> FloatLoop:
        return FloatLoop(self.graph, sources, self.arrays, self.names)

    def _entering(self, number: int) -> str:
        several = len(self.entered) > 1
        return f"{self.name}_codes" + (f"_{number}" if several else "")

    def _calls(self) -> str:
        (run,) = self.net.runs  # whose parameters are all entries and exits, in order
        ports = ", ".join(f"memory->{port.name}" for port in self._ports())
        exits = ", ".join(f"memory->{port.name}" for port in self.left)
        failing = " || ".join(
            f"{self._entering(i)}(observation, memory->{port.name})"
            for i, port in enumerate(self._port_of(entry) for entry in self.entered)
        )
        lines = [
            f"if ({failing})",
            f"    return {self.name.upper()}_NOT_FINITE;",
            f"{run.name}_in(&memory->arena, {ports});",
            f"{self.name}_outputs({exits}, memory->outputs);",
            f"{self.name}_head(memory->outputs,{self._mask['mask_argument']} action);",
        ]
        lines += [line for state in self.states for line in state.copied()]
        return "\n".join(f"    {line}" for line in lines)

    def _reset(self, words: Mapping[str, str]) -> dict[str, str]:
        """The functions that set states to zero; empty without states."""
        if not self.states:
            return {"reset": "", "static_reset": ""}
        zeros = "\n".join(f"    {line}" for state in self.states for line in state.zeros())
        return {
            "reset": RESET.format(**words, zeros=zeros),
            "static_reset": STATIC_RESET.format(**words),
        }

    def _port_of(self, entry: Entry) -> Port:
        return next(port for port in self.entries if port.tensor == entry.tensor)


def _element_of(array: str, before: str) -> Callable[[str], str]:
    return lambda index: f"{array}[{before}{index}]"


def _inputs_of(nodes: Sequence[Node]) -> set[str]:
    return {value for node in nodes for value in node.inputs}


def _local_name(text: str) -> str:
    """A name of a local variable or of an array of the file."""
    name = identifier(text)
    taken = name in KEYWORDS | USED | LOCALS | HELPERS or len(name) == 1
    return f"{name}_value" if taken else name


def _folded(text: str) -> str:
    """Text whose long lines are broken after commas, with the indent of their line."""
    lines: list[str] = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines += [indent + part for part in folded(line.lstrip(), WIDTH - len(indent))]
    return "\n".join(lines)


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"        {line}" for line in lines)
