"""Compare every form with the integer reference: ``python -m benchmarks.forms [--own] ...``.

The networks are real networks, ten policies (if they are available), and architectures with random
weights. Forms that support any profile are compared for two profiles; with `--own`, forms that have
profiles of their own are compared for these. Codes are compared, tensor by tensor, without a
tolerance. An interrupted run continues.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import Annotated

import typer

from benchmarks.forms.comparison import (
    COLUMNS,
    Row,
    forms_of_any_profile,
    own_profiles,
    rows,
)
from benchmarks.forms.networks import Source, sources
from benchmarks.real.resumed import Part, resumed
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.choices import ExportFormat
from qgraph.quiet import import_tensorflow_quietly

TITLE = "Codes compared with the integer reference"
# Every form of any profile supports the first one; the second one has 16-bit stages.
PROFILES = ("int32-bias", "graffitist-int8")
STRUCTURE = PROFILES[:1]  # of networks with random weights

Forms = Mapping[str, Sequence[ExportFormat]]


def main(
    own: Annotated[
        bool, typer.Option("--own", help="Compare the forms that have profiles of their own.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="Part of a name; may be repeated.")] = None,
    forms: Annotated[list[str] | None, typer.Option(help="A form; may be repeated.")] = None,
    trained: Annotated[
        bool, typer.Option("--trained", help="Leave out networks with random weights.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Compare the forms, and print a table of elements compared and elements that differ."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import_tensorflow_quietly()
    wanted = by_profile(own, forms or [*ExportFormat])
    chosen = [s for s in sources() if not only or any(part in s.name for part in only)]
    if trained:
        chosen = [source for source in chosen if source.trained]
    report("benchmarks.forms", [table(chosen, wanted)], json_file)


def by_profile(own: bool, wanted: Sequence[str]) -> Forms:
    """The forms to compare for each profile."""
    found = own_profiles() if own else dict.fromkeys(PROFILES, forms_of_any_profile())
    chosen = {profile: [f for f in forms if f in wanted] for profile, forms in found.items()}
    return {profile: forms for profile, forms in chosen.items() if forms}


def table(chosen: Sequence[Source], wanted: Forms) -> Table:
    """A row for each network, profile and executor."""
    parts: dict[str, Callable[[], Part]] = {
        source.name: partial(_part, source, wanted) for source in chosen
    }
    made = Table(TITLE, COLUMNS)
    settings = [f"{profile}: {', '.join(forms)}" for profile, forms in wanted.items()]
    title = f"forms, {' '.join(wanted)}"
    for part in resumed(title, parts, settings):
        made.rows += [dict(zip(COLUMNS, row, strict=True)) for row in part.rows]
    return made


def _part(source: Source, wanted: Forms) -> Part:
    made = [list(astuple(row)) for row in _rows(source, wanted)]
    return Part(made, "")


def _rows(source: Source, wanted: Forms) -> Iterator[Row]:
    graph = source.load()
    inputs = source.inputs(graph)
    for profile, forms in wanted.items():
        if source.trained or profile not in PROFILES or profile in STRUCTURE:
            for row in rows(source, graph.copy(), inputs, profile, forms):
                print(*astuple(row), sep="; ", flush=True)
                yield row


if __name__ == "__main__":
    typer.run(main)
