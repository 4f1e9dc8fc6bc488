"""Pages that list every verb of the command line, from the declarations of its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from qgraph.cli.main import app

INTRODUCTION = """\
# {title}

{text}

`{program} VERB --help` prints the same: this page is generated from the options themselves.
"""
RL = "Commands for policies have [a page of their own](rl_command_line.md)."
EXTRA = re.compile(r"  \[(?P<extra>[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*)\]$", re.DOTALL)


def pages_of_verbs() -> dict[str, str]:
    """The two pages, by their paths on the site."""
    root: Any = typer.main.get_command(app)
    context = _context(root, "qgraph")
    rl = root.get_command(context, "rl")
    summary = _markdown(root.help).split("Exit codes:")[0].strip()
    codes = "[Exit codes](../exit_codes.md) say what went wrong."
    return {
        "reference/command_line.md": _page("Command line", f"{summary}\n\n{RL} {codes}", context),
        "reference/rl_command_line.md": _page(
            "Commands for policies", _markdown(rl.help), _context(rl, "rl", context)
        ),
    }


def _context(command: Any, name: str, parent: Any = None) -> Any:
    return command.context_class(command, info_name=name, parent=parent)


def _page(title: str, text: str, context: Any) -> str:
    group, program = context.command, context.command_path
    parts = [INTRODUCTION.format(title=title, text=text, program=program)]
    for name in group.list_commands(context):
        if name != "rl":
            parts += _verb(_context(group.get_command(context, name), name, context))
    if program == "qgraph":
        parts += ["## Options of every command", *_tables(context, "option")]
    return "\n\n".join(parts) + "\n"


def _verb(context: Any) -> Iterator[str]:
    command = context.command
    yield f"## {context.command_path}"
    pieces = [p.replace("{", "").replace("}", "") for p in command.collect_usage_pieces(context)]
    usage = [p.replace("[[", "[").replace("]]", "]") for p in pieces]
    usage = [p if p.startswith("[") else p.upper() for p in usage]
    yield f"```text\n{' '.join([context.command_path, *usage])}\n```"
    yield _markdown(command.help)
    for kind in ("argument", "option"):
        yield from _tables(context, kind)


def _tables(context: Any, kind: str) -> Iterator[str]:
    """A table for each panel of the help, below the panel's title; the first has no title."""
    panels: dict[str, list[tuple[str, str]]] = {"": []}
    for parameter in context.command.params:
        record = parameter.get_help_record(context)
        if parameter.param_type_name == kind and record is not None:
            panels.setdefault(parameter.rich_help_panel or "", []).append(record)
    for title, records in panels.items():
        if records:
            yield from [f"### {title}", _table(kind, records)] if title else [_table(kind, records)]


def _table(kind: str, records: list[tuple[str, str]]) -> str:
    rows = [f"| {kind} | default, range | meaning |", "| --- | --- | --- |"]
    for names, text in records:
        extra = EXTRA.search(text)
        cells = (
            _names(names) if kind == "option" else f"`{names.partition(' <')[0].upper()}`",
            _default(extra["extra"]) if extra else "",
            _markdown(EXTRA.sub("", text)),
        )
        rows.append(
            "| " + " | ".join(c.replace("\n", " ").replace("|", "\\|") for c in cells) + " |"
        )
    return "\n".join(rows)


def _names(names: str) -> str:
    """Each name as code of its own, so that a line can break between them."""
    return ", ".join(f"`{name}`" for name in names.replace("<path>", "PATH").split(", "))


def _default(extra: str) -> str:
    """`default: (kl_j); x>=1` without the words of the column's title."""
    text = extra.removeprefix("default: ")
    if match := re.match(r"\((.*)\)(; .*)?$", text, re.DOTALL):
        text = match[1] + (match[2] or "")
    return _markdown(re.sub(r"x>=(\S+)", r"at least \1", text))


def _markdown(text: str | None) -> str:
    """Help without rich's markup, in which `<` and `*` are text."""
    plain = re.sub(r"\[/?(?:bold|dim|italic|cyan|green|red|yellow)[^\]]*\]", "", text or "")
    return re.sub(r"([<*_])", r"\\\1", plain.replace("\b\n", "").replace("\f", ""))
