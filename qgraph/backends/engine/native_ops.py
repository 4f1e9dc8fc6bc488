"""The engine's op list in C++, generated from the definitions: fused_ops/engine/ops.h."""

from __future__ import annotations

from collections.abc import Iterator

from qgraph.ops.native_enums import enumeration, header
from qgraph.program.ops import OPS, OpClass


def ops_header() -> str:
    """The text of ops.h: an enumeration of all ops, one for each family, and facts by op."""
    return header("qgraph/program/ops", "qgraph::engine", ".qgi", _lines())


def _lines() -> Iterator[str]:
    yield from enumeration("Op", [(op.name, op.code) for op in OPS.values()])
    yield f"constexpr uint32_t kOps = {len(OPS)};"
    yield ""
    yield "// The loop that an op needs."
    yield "enum class Family : uint8_t {"
    longest = max(len(family.name) for family in OpClass)
    for family in OpClass:
        yield f"    {f'{family.name.lower()},'.ljust(longest + 1)}  // {family.value}"
    yield "};"
    yield ""
    yield "// The ops of each family: a `switch` that misses one does not compile."
    for family in OpClass:
        of_family = [(op.name, op.code) for op in OPS.values() if op.family is family]
        name = f"{family.name.capitalize()}Op"
        yield from enumeration(name, of_family)
        lower = family.name.lower()
        yield f"constexpr {name} as_{lower}(Op op) {{ return static_cast<{name}>(op); }}"
        yield ""
    yield "struct OpFacts {"
    yield "    const char* name;"
    yield "    Family family;"
    yield "    uint32_t inputs;"
    yield "    bool more_inputs;  // `inputs` or more"
    yield "};"
    yield "constexpr OpFacts kOpFacts[kOps] = {"
    for op in OPS.values():
        more = "true" if op.variadic else "false"
        of_op = f"Family::{op.family.name.lower()}"
        yield f'    {{"{op.name}", {of_op}, {len(op.operands)}, {more}}},'
    yield "};"
    yield ""
    yield "constexpr const OpFacts& facts_of(Op op) { return kOpFacts[static_cast<uint32_t>(op)]; }"
    yield "constexpr Family family_of(Op op) { return facts_of(op).family; }"
    yield "constexpr const char* name_of(Op op) { return facts_of(op).name; }"
