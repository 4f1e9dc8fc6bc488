"""The .h file: types, sizes and functions for callers."""

from __future__ import annotations

from qgraph.backends.c.source import CUnit, Port
from qgraph.names import comment
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

/* Runs the network in memory of the caller; the arena needs no initialization. */
void {net}_run_in({net}_arena *arena, {parameters});

/* Runs the network in a static arena, so it is not reentrant. {NET}_NO_STATIC_ARENA omits it. */
void {net}_run({parameters});

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


def header(unit: CUnit) -> str:
    """The whole file."""
    members = [
        f"    {kind}_t {kind[0] if kind[0] == 'u' else 'i'}{bits}[{unit.arena * 8 // bits}];"
        for kind in MEMBERS
        for bits in [int(kind.strip("uint"))]
    ]
    return HEADER.format(
        net=unit.net,
        NET=unit.net.upper(),
        title=comment(unit.program.name),
        ports="\n".join(_port(unit, p) for p in (*unit.entries, *unit.exits)),
        arena=unit.arena,
        members="\n".join(members),
        parameters=unit.parameters,
    )


def _port(unit: CUnit, port: Port) -> str:
    tensor = unit.program.tensors[port.tensor]
    kind = "entry" if port in unit.entries else "exit"
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
