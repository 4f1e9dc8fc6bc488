"""Parts of docs/integer_program.md that are made from the definitions of ops and records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from qgraph.backends.engine.records import HEADER, STEP, STORAGES, TENSOR, Kind, Record
from qgraph.ops.attributes import Declaration, declarations
from qgraph.program.ops import OPS, ProgramOp
from qgraph.program.ops.layout import layout_of, type_words
from qgraph.quant.key_tables import markdown_table

LARGE = 1 << 20  # numbers from here on are written as powers


def ops_table() -> str:
    """All ops, each with a link to its entry."""
    rows = [
        (f"{op.code}", f"[`{op.name}`](#{op.name})", _operands(op), op.manual.summary)
        for op in OPS.values()
    ]
    return markdown_table(("number", "op", "operands", "what it does"), rows)


def op_entries() -> str:
    """The entry of each op, in the order of their numbers."""
    return "\n".join(op_entry(op) for op in OPS.values())


def op_entry(op: ProgramOp[Any]) -> str:
    """One op: summary, formula, facts, attributes."""
    return "\n".join([f"### {op.name}", "", *_entry(op)])


def _entry(op: ProgramOp[Any]) -> Iterator[str]:
    manual = op.manual
    yield manual.summary
    yield ""
    yield from (f"    {line}" for line in manual.formula.splitlines())
    yield ""
    yield f"- Number: {op.code}. Operands: {_operands(op).removesuffix('.')}."
    yield f"- Shape: {manual.shape}."
    yield f"- Range: {manual.reach}."
    yield f"- Overflow: {manual.overflow}."
    yield f"- Samples stay separate: {manual.samples}."
    if manual.file:
        yield f"- In the file: {manual.file}."
    yield ""
    yield attributes_table(op)


def attributes_table(op: ProgramOp[Any]) -> str:
    """The attributes, in the order of the file."""
    if not declarations(op.attributes):
        return "No attributes.\n"
    order = {name: i for i, name in enumerate(op.in_file)}
    declared = sorted(declarations(op.attributes), key=lambda d: order.get(d.name, len(order)))
    rows = [
        (f"`{d.name}`", type_words(op.attributes, d.name), _range(d), _default(d), d.meaning,
         _in_file(op, d.name))
        for d in declared
    ]  # fmt: skip
    return markdown_table(("attribute", "type", "range", "default", "meaning", "in the file"), rows)


def record_table(record: Record) -> str:
    rows = [
        (f"{offset}", f"`{field.name}`", field.type, field.meaning)
        for offset, field in zip(record.offsets(), record.fields, strict=True)
    ]
    return markdown_table(("byte", "field", "type", "meaning"), rows)


def storages_table() -> str:
    rows = [(f"{i}", f"`{name}`") for i, name in enumerate(STORAGES)]
    return markdown_table(("number", "type"), rows)


KINDS: Mapping[Kind, str] = {
    Kind.COMPUTED: "a step computes them",
    Kind.CONSTANT: "they are in the file",
    Kind.ENTRY: "the caller of a run provides them",
}


def kinds_table() -> str:
    rows = [(f"{kind.value}", kind.name.lower(), KINDS[kind]) for kind in Kind]
    return markdown_table(("number", "kind", "its codes"), rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "ops of the integer program": ops_table,
    "entries of ops": op_entries,
    "header of a .qgi file": partial(record_table, HEADER),
    "record of a tensor": partial(record_table, TENSOR),
    "record of a step": partial(record_table, STEP),
    "types of codes": storages_table,
    "kinds of tensors": kinds_table,
}


def _operands(op: ProgramOp[Any]) -> str:
    return ", ".join(
        f"`{name[:-3]}0`, `{name[:-3]}1`, ..." if name.endswith("...") else f"`{name}`"
        for name in op.operands
    )


def _range(declared: Declaration) -> str:
    return re.sub(r"\d{7,}", lambda found: power(int(found[0])), declared.range) or "any"


def power(number: int) -> str:
    """A power of two as `2^53`, other numbers as they are."""
    exact = number >= LARGE and not number & (number - 1)
    return f"2^{number.bit_length() - 1}" if exact else f"{number}"


def _default(declared: Declaration) -> str:
    return "" if declared.required else f"`{declared.default}`"


def _in_file(op: ProgramOp[Any], name: str) -> str:
    if name not in op.in_file:
        return "no"
    return "see above" if op.manual.file else str(layout_of(op.attributes)[name])
