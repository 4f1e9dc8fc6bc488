"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qgraph.errors import UsageError
from qgraph.ir.types import Shape

Model = Annotated[
    Path,
    typer.Argument(
        help="A frozen .pb, a SavedModel directory, a Keras .h5/.keras, or a .meta checkpoint."
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option("--inputs", help="Input names, comma separated, where they are not plain."),
]
Outputs = Annotated[
    str | None,
    typer.Option("--outputs", help="Output names, comma separated, where they are not plain."),
]
InputShapes = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape", help="Shape of an input: [NAME=]N,H,W,C with ? for unknown. Repeatable."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def names(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text else None


def shapes(texts: list[str] | None) -> dict[str, Shape] | None:
    """Shapes by input name; the name `` stands for the only input."""
    if not texts:
        return None
    found: dict[str, Shape] = {}
    for text in texts:
        name, _, dims = text.rpartition("=")
        try:
            found[name] = tuple(
                None if d.strip() in ("?", "-1") else int(d) for d in dims.split(",")
            )
        except ValueError:
            raise UsageError(
                f"`{text}` is not a shape", hint="like --input-shape image=1,224,224,3"
            ) from None
    return found
