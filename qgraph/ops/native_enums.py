"""Enumerations in C++ that are generated from definitions of ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

HEAD = """\
// Generated from {source} by `make golden`. Do not edit: a test compares them.
#pragma once

#include <cstdint>

namespace {space} {{

// The numbers are those of `{file}` files.
"""


def header(source: str, space: str, file: str, lines: Iterable[str]) -> str:
    """A header in a namespace. source: the place of definitions; file: format of the numbers."""
    head = HEAD.format(source=source, space=space, file=file)
    return "\n".join([head + "\n".join(lines), "", f"}}  // namespace {space}", ""])


def enumeration(name: str, members: Iterable[tuple[str, int]]) -> Iterator[str]:
    """A scoped enumeration of uint32_t."""
    yield f"enum class {name} : uint32_t {{"
    yield from (f"    {member} = {number}," for member, number in members)
    yield "};"
