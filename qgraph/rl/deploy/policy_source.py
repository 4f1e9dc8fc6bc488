"""The files `NAME.h` and `NAME.c` of a deployed policy: float observations in, an action out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.backends.c.c_text import WIDTH, folded
from qgraph.backends.c.source import CUnit, Port
from qgraph.errors import UnsupportedError
from qgraph.ir.types import Overflow, Rounding
from qgraph.names import KEYWORDS, USED, Namespace, comment, identifier
from qgraph.program import Entry, Tensor
from qgraph.program.layers import elements
from qgraph.rl.deploy.c_facts import CPolicyFacts
from qgraph.rl.deploy.float_loop import FloatArrays, FloatLoop, FloatSource, float_literal
from qgraph.rl.deploy.head_source import TANH, head_body, needs_tanh
from qgraph.rl.policy import Policy

OBSERVED = {"float32": "float", "uint8": "uint8_t"}  # types of observations in C
# Names in the generated file: of its variables and helpers, and behind `NAME_`.
LOCALS = {"value", "codes", "outputs", "action", "observation", "memory", "steps", "low", "high"}
HELPERS = {"larger", "smaller", "code_of", "tanh_of", "code", "rest", "best"}
OWN = ("codes", "outputs", "head", "act", "act_in", "memory", "observation", "action")
LARGEST_STEP = 100  # exponents up to this have steps that are normal float32, with room
EXACT = 2**24  # float32 holds integers up to this

HEADER = """\
#ifndef {NAME}_H
#define {NAME}_H

/* Policy {title}: from an observation to an action.
 *
 * Compile without -ffast-math and, for processors with fused multiply-add, with -ffp-contract=off:
 * actions are then those of the policy in Python, bit for bit.
 */
#include "{net}.h"

#ifdef __cplusplus
extern "C" {{
#endif

#define {NAME}_OBSERVATION_SIZE {observation} /* shape: {shape} */
#define {NAME}_ACTION_SIZE {action}
{choices}#define {NAME}_MEMORY_BYTES {memory}
#define {NAME}_CONSTANT_BYTES {constants} /* weights and tables, without code */

typedef {observed} {name}_observation;
typedef {acted} {name}_action;

enum {{
    {NAME}_OK = 0,
    {NAME}_NOT_FINITE = 1 /* the observation has NaN or infinity; the action is unchanged */
}};

typedef struct {{
{members}
}} {name}_memory;

/* Computes the action for one observation{rows}, in memory of the caller, which needs no
 * initialization. Returns {NAME}_OK or {NAME}_NOT_FINITE. */
int {name}_act_in({name}_memory *memory, const {name}_observation *observation,
                  {name}_action *action);

/* The same in static memory, so it is not reentrant. {NAME}_NO_STATIC_MEMORY omits it. */
int {name}_act(const {name}_observation *observation, {name}_action *action);

#ifdef __cplusplus
}}
#endif

#endif
"""
SOURCE = """\
/* Policy {title}: observations become codes, `{net}.c` computes with integers, and
 * codes become the action. */
#include "{name}.h"

#include <float.h>

#ifdef __FAST_MATH__
#error "compile without -ffast-math: it changes results"
#endif
#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "float must be computed as float; on x86 use -msse2 -mfpmath=sse"
#endif
/* a * b + c must be rounded twice. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

{helpers}
{arrays}
{stages}
int {name}_act_in({name}_memory *memory, const {name}_observation *observation,
                  {name}_action *action)
{{
{finite}{calls}
    return {NAME}_OK;
}}

#ifndef {NAME}_NO_STATIC_MEMORY
int {name}_act(const {name}_observation *observation, {name}_action *action)
{{
    static {name}_memory memory;

    return {name}_act_in(&memory, observation, action);
}}
#endif
"""
FINITE = """\
    for (int32_t i = 0; i < {NAME}_OBSERVATION_SIZE; ++i)
        if (!(observation[i] >= -FLT_MAX && observation[i] <= FLT_MAX))
            return {NAME}_NOT_FINITE;
"""
LARGER = """\
/* NaN, if one of them is. */
static float larger(float a, float b)
{
    return a > b || a != a ? a : b;
}
"""
SMALLER = """\
/* NaN, if one of them is. */
static float smaller(float a, float b)
{
    return a < b || a != a ? a : b;
}
"""
CODE_OF = """\
/* The code of x, which is not NaN: rounded to the nearest, half to even, in low..high. */
static int32_t code_of(float x, float steps, int32_t low, int32_t high)
{
    const float v = x * steps;
    int32_t code;
    float rest;

    if (v <= (float)low)
        return low;
    if (v >= (float)high)
        return high;
    code = (int32_t)v;
    rest = v - (float)code;
    if (rest > 0.5f || (rest == 0.5f && code & 1))
        ++code;
    if (rest < -0.5f || (rest == -0.5f && code & 1))
        --code;
    return code;
}
"""
ENTER = """\
static int {function}(const {name}_observation *observation, {kind}_t *codes)
{{
    for (int32_t i = 0; i < {count}; ++i) {{
{lines}
        if (value != value)
            return {NAME}_NOT_FINITE;
        codes[i] = ({kind}_t)code_of(value, {steps}, {low}, {high});
    }}
    return {NAME}_OK;
}}
"""
LEAVE = """\
static void {name}_outputs({parameters}, float *outputs)
{{
    for (int32_t i = 0; i < {count}; ++i) {{
{lines}
    }}
}}
"""
HEAD = """\
static void {name}_head(const float *outputs, {name}_action *action)
{{
{body}
}}
"""


@dataclass(frozen=True)
class PolicySource:
    """The texts of `NAME.h` and `NAME.c`."""

    header: str
    source: str
    facts: CPolicyFacts


def policy_source(policy: Policy, net: CUnit, name: str) -> PolicySource:
    """Write a static policy as C around its integer program `net`. Raises UnsupportedError."""
    return _PolicyWriter(policy, net, name).written()


class _PolicyWriter:
    def __init__(self, policy: Policy, net: CUnit, name: str) -> None:
        self.policy, self.net, self.name = policy, net, name
        self.program, self.graph = policy.program, policy.network.graph
        own = {f"{name}_{word}" for word in OWN} | {
            f"{net.net}_{word}" for word in ("run", "arena")
        }
        # One name space for arrays and local variables: neither hides the other.
        self.names = Namespace(_local_name, {*own, *(port.name for port in self._ports())})
        self.arrays = FloatArrays(self.names)
        (self.input,) = (n for n in self.graph.inputs if self.graph.is_used(n))
        dtype = self.graph.types[self.input].dtype
        if dtype not in OBSERVED:
            raise UnsupportedError(
                f"observations of {dtype} have no form in C",
                node=self.input,
                hint="export the policy with observations of float32 or uint8",
            )
        self.observed = OBSERVED[dtype]

    def written(self) -> PolicySource:
        entries = [self._enter(i, e) for i, e in enumerate(self.program.entries)]
        leave, count = self._leave()
        body = head_body(self.policy.head, count, self.arrays)
        stages = [*entries, leave, HEAD.format(name=self.name, body=body)]
        members, memory = self._memory(count)
        arrays = [array for _, _, array in self.net.data] + [*self.arrays.held.values()]
        facts = CPolicyFacts(
            self.name,
            self.net.net,
            comment(self.program.name),
            self.policy.shape,
            self.observed,
            self.policy.head,
            count,
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
        )
        helpers = [LARGER] if any("larger(" in text for text in stages) else []
        helpers += [SMALLER] if any("smaller(" in text for text in stages) else []
        helpers += [TANH] if needs_tanh(self.policy.head) else []
        source = SOURCE.format(
            **words,
            helpers="\n".join([CODE_OF, *helpers]),
            arrays="\n".join([*self.arrays.definitions(), ""]) if self.arrays.held else "",
            stages="\n".join(stages),
            finite=FINITE.format(**words) if facts.floats else "",
            calls=self._calls(),
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
        return (*self.net.entries, *self.net.exits)

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
        source = FloatSource(self.policy.shape, lambda i: f"observation[{i}]")
        loop = self._loop({self.input: source})
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

    def _leave(self) -> tuple[str, int]:
        """The function that computes outputs from codes of exits, and the number of outputs."""
        sources = {
            port.tensor: self._source(port, self.program.tensors[port.tensor])
            for port in self.net.exits
        }
        loop = self._loop(sources)
        name = self.graph.outputs[self.policy.names[0]]
        shape = self.graph.types[name].shape or ()
        count = int(np.prod([size or 1 for size in shape]))
        value = loop.element(name)
        kinds = {port.name: self.program.tensors[port.tensor].storage for port in self.net.exits}
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
        several = len(self.program.entries) > 1
        return f"{self.name}_codes" + (f"_{number}" if several else "")

    def _calls(self) -> str:
        (run,) = self.net.runs
        ports = ", ".join(f"memory->{port.name}" for port in (*run.entries, *run.exits))
        exits = ", ".join(f"memory->{port.name}" for port in self.net.exits)
        failing = " || ".join(
            f"{self._entering(i)}(observation, memory->{port.name})"
            for i, port in enumerate(self.net.entries)
        )
        lines = [
            f"if ({failing})",
            f"    return {self.name.upper()}_NOT_FINITE;",
            f"{run.name}_in(&memory->arena, {ports});",
            f"{self.name}_outputs({exits}, memory->outputs);",
            f"{self.name}_head(memory->outputs, action);",
        ]
        return "\n".join(f"    {line}" for line in lines)


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
