"""The .h file: types, sizes and functions for callers."""

from __future__ import annotations

from collections.abc import Sequence

from qgraph.backends.c.source import CRun, CUnit, Port
from qgraph.ir.reading import kind_of
from qgraph.names import comment
from qgraph.program import Entry
from qgraph.program.islands import Island
from qgraph.program.layers import elements

HEADER = """\
#ifndef {NET}_H
#define {NET}_H

/* {title}
 *
 * Tensors are stored row by row, channels last. The value of a code is code * 2^-EXPONENT. Codes
 * of inputs must be in LOW..HIGH. The arena is the memory for tensors between inputs and outputs.
 */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{ports}
#define {NET}_ARENA_BYTES {arena}

typedef union {{
{members}
}} {net}_arena;

{runs}
#ifdef {NET}_TRACE
/* Must be defined by the user. It is called with each code of each tensor; {net}_test.c lists the
 * numbers of tensors. */
void {net}_trace(int tensor, int32_t index, int64_t code);
#endif

#ifdef __cplusplus
}}
#endif

#endif
"""
MEMBERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")


RUN = """\
/* Runs {what} in memory of the caller; the arena needs no initialization. */
void {name}_in({net}_arena *arena, {parameters});

/* Runs {what} in a static arena, so it is not reentrant. {NET}_NO_STATIC_ARENA omits it. */
void {name}({parameters});
"""


def header(unit: CUnit, islands: Sequence[Island] = ()) -> str:
    """The whole file. islands: what the host computes before later segments."""
    members = [
        f"    {kind}_t {kind[0] if kind[0] == 'u' else 'i'}{bits}[{unit.arena * 8 // bits}];"
        for kind in MEMBERS
        for bits in [int(kind.strip("uint"))]
    ]
    return HEADER.format(
        net=unit.net,
        NET=unit.net.upper(),
        title=comment(unit.program.name),
        ports="\n".join(_port(unit, p) for p in (*unit.entries, *unit.exits, *unit.passed_on)),
        arena=unit.arena,
        members="\n".join(members),
        runs="\n".join(_run(unit, run, islands) for run in unit.runs),
    )


def _run(unit: CUnit, run: CRun, islands: Sequence[Island]) -> str:
    whole = len(unit.runs) == 1
    what = "the network" if whole else f"segment {unit.runs.index(run)}"
    text = RUN.format(
        what=what, name=run.name, net=unit.net, NET=unit.net.upper(), parameters=run.parameters
    )
    begun = {entry.tensor for entry in run.part.entries}
    before = [one for one in islands if begun & {entry.tensor for entry in one.feeds}]
    return "".join([*map(_island, before), text])


def _island(island: Island) -> str:
    """Describe what the host computes in float between two segments."""
    ops = [f" *     {comment(node.name)}: {comment(kind_of(node))}" for node in island.nodes]
    read = comment(", ".join(island.reads))
    return "\n".join(
        [
            f"/* Before the next segment, the host computes in float, from values of {read}:",
            *ops,
            " * Then it quantizes: a code is value * 2^EXPONENT, rounded, in LOW..HIGH:",
            *map(_quantized, island.feeds),
            " */\n",
        ]
    )


def _quantized(entry: Entry) -> str:
    rounding, overflow = entry.spec.rounding, entry.spec.overflow
    return (
        f" *     {comment(entry.source)} becomes {comment(entry.tensor)} (rounding: {rounding}, "
        f"overflow: {overflow})"
    )


def _port(unit: CUnit, port: Port) -> str:
    tensor = unit.program.tensors[port.tensor]
    kind = "entry" if port in unit.entries else "exit"
    kind = "passed on to a later segment:" if port in unit.passed_on else kind
    stem = f"{unit.net}_{port.name}".upper()
    exponent = tensor.exponent
    scale = ("EXPONENT", f"({exponent})")
    if isinstance(exponent, tuple):  # one for each channel
        scale = ("EXPONENTS", f"{{{', '.join(map(str, exponent))}}}")
    facts = (
        ("SIZE", elements(tensor)),
        ("RANK", len(tensor.shape)),
        ("SHAPE", f"{{{', '.join(map(str, tensor.shape))}}}"),
        ("LOW", f"({tensor.low})"),
        ("HIGH", f"({tensor.high})"),
        scale,
    )
    defines = [f"#define {stem}_{key} {value}" for key, value in facts]
    return "\n".join([f"/* {kind} {comment(port.tensor)} */", *defines, ""])
