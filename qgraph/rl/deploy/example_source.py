"""`NAME_example.c` and the README of a deployed policy."""

from __future__ import annotations

from qgraph.choices import HeadKind
from qgraph.rl.deploy.c_facts import CPolicyFacts
from qgraph.words import counted

FEW = 24  # numbers of an observation that documentation types out
# What the example prints for an observation that is refused, without and with masks.
NOT_FINITE, REFUSED = "not finite", "refused"
EXAMPLE = """\
/* Reads observations as text, {NAME}_OBSERVATION_SIZE numbers each{mask_read}, and prints an action
 * in a line for each of them:
 *
 *     echo {numbers} | ./{name}_example
 */
#include "{name}.h"

#include <stdio.h>

static {name}_observation observation[{NAME}_OBSERVATION_SIZE];
{mask_declared}
int main(void)
{{
    {name}_action action[{NAME}_ACTION_SIZE];
    int32_t count = 0;
    int found;
    {read} number;

    while ((found = scanf("{format}", &number)) == 1{limit}) {{
        {mask_stored}observation[count++] = ({name}_observation)number;
        if (count < {NAME}_OBSERVATION_SIZE{mask_needed})
            continue;
        count = 0;
        if ({name}_act(observation,{mask_argument} action) != {NAME}_OK) {{
            puts("{refused}");
        }} else {{
            for (int32_t i = 0; i < {NAME}_ACTION_SIZE; ++i)
                printf("{print}%c", {value}, i + 1 < {NAME}_ACTION_SIZE ? ' ' : '\\n');
        }}
        fflush(stdout);
    }}
    if (found != EOF || count != 0) {{
        fprintf(stderr, "an observation has %d numbers{range}\\n",
                {NAME}_OBSERVATION_SIZE{mask_needed});
        return 1;
    }}
    return 0;
}}
"""
README = """\
# {title}

A policy in C99, written by qgraph: integers inside, without allocation. Its actions are those of
the policy in Python, bit for bit.

| file | content |
|---|---|
| `{name}.h`, `{name}.c` | `{name}_act`: normalization, codes, the network, the head |
| `{net}.h`, `{net}.c` | the network on codes |
| `{name}_example.c` | reads observations from standard input, prints actions |
| `{index}` | facts for programs: shape, head, scales, hashes of the files |

- Observation: {observation} numbers of `{observed}`, shape {shape}{rows}
{mask_meaning}- Action: {meaning}
{states}- Constants (flash): {constants} bytes, and code
- Memory (RAM): {memory} bytes, `{name}_memory`; {arena} of them are the arena of the network

## Try it

    cc -std=c99 -O2 -ffp-contract=off {name}.c {net}.c {name}_example.c -o {name}_example
    echo {numbers} | ./{name}_example

## In firmware

    #include "{name}.h"

    static {name}_memory memory; /* {NAME}_MEMORY_BYTES */

    void control_step(void)
    {{
        {name}_observation observation[{NAME}_OBSERVATION_SIZE];
        {name}_action action[{NAME}_ACTION_SIZE];
        read_sensors(observation);
        if ({name}_act_in(&memory, observation,{mask_argument} action) == {NAME}_OK)
            drive(action);
    }}

`-D{NAME}_NO_STATIC_MEMORY` and `-D{NET}_NO_STATIC_ARENA` leave out `{name}_act` and its static
memory.
{refusal}

## What is exact

{exact}
"""
STATES_TEXT = """\
- States: {states}. They stay in `{name}_memory`; `{name}_reset_in` begins an episode
"""
FINITE_TEXT = (
    "`{name}_act` returns {NAME}_NOT_FINITE for NaN and infinity, and leaves the action as it was."
)
EXACT_TEXT = """\
- Everything between the codes of observations and the codes of outputs is integer arithmetic.
- Before and behind it, each float operation is rounded once to float32, as IEEE 754 defines.
  `-ffast-math` is refused. Compilers other than GCC and clang must be told not to fuse `a * b + c`.
- Numbers beyond the range of the codes saturate."""
TANH_TEXT = """
- The tanh of the head is computed in float64 and rounded to float32."""


def example_source(facts: CPolicyFacts) -> str:
    """The text of `NAME_example.c`."""
    return EXAMPLE.format(
        **facts.words(),
        numbers=_numbers(facts),
        read="float" if facts.floats else "unsigned",
        format="%f" if facts.floats else "%u",
        limit="" if facts.floats else " && number <= 255",
        print="%ld" if facts.integers else "%.9g",
        value="(long)action[i]" if facts.integers else "action[i]",
        refused=REFUSED if facts.masks else NOT_FINITE,
        range="" if facts.floats else " from 0 to 255",
    )


def readme(facts: CPolicyFacts, index: str) -> str:
    """The text of README.md. index: the file with facts for programs."""
    words = facts.words()
    squashed = facts.head is not None and facts.head.kind == HeadKind.SQUASHED_GAUSSIAN
    return README.format(
        **words,
        index=index,
        rows=", row by row, channels last" if len(facts.shape) > 1 else "",
        meaning=_meaning(facts),
        states=STATES_TEXT.format(**words, states=", ".join(facts.states)) if facts.states else "",
        numbers=_numbers(facts),
        refusal=FINITE_TEXT.format(**words) if facts.floats else "",
        exact=EXACT_TEXT + (TANH_TEXT if squashed else ""),
    )


def _meaning(facts: CPolicyFacts) -> str:
    if facts.discrete:
        return f"the number of one of {facts.outputs} actions (`int32_t`)"
    if facts.integers:
        return f"{facts.action_size} numbers (`int32_t`), each of one of several options"
    if facts.head is None:
        return f"{facts.outputs} outputs of the network (`float`), because the policy has no head"
    return f"{counted(facts.action_size, 'number')} (`float`), in the bounds of the head"


def _numbers(facts: CPolicyFacts) -> str:
    """Zeros that the documentation types as an observation."""
    few = facts.observation_size <= FEW
    return " ".join(["0"] * facts.observation_size) if few else "NUMBERS"
