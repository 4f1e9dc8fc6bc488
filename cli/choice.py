"""Options whose value is one of a few words."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from qgraph.choices import chosen
from qgraph.cli.completion import starting


def choice(
    words: Iterable[str],
    noun: str,
    *flags: str,
    metavar: str,
    help: str,
    show_default: bool | str = True,
) -> object:
    """A `typer.Option` that takes one of `words`, which shells complete.

    Another word is a UsageError like "unknown mode `x`; choose static or retrain", where typer has
    a message of its own for enumerations. `noun` is `mode` here.
    """
    known = list(words)

    def parse(text: str) -> str:
        return chosen(known, text, noun)

    def complete(incomplete: str) -> list[str]:
        return starting(known, incomplete)

    return typer.Option(
        *flags,
        metavar=metavar,
        help=help,
        show_default=show_default,
        parser=parse,
        autocompletion=complete,
    )
