"""`qgraph report`: show a quantized network as one HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from qgraph.cli.options import OUTPUT_DIRECTORY, Json


def report(
    directory: Annotated[Path, typer.Argument(help=OUTPUT_DIRECTORY)],
    as_json: Json = False,
) -> None:
    """Write report.html into the directory: layers, histograms, scale groups and advice.

    The page is one file and loads nothing from the internet.
    """
    from qgraph.cli.console import console
    from qgraph.records import to_json
    from qgraph.reporting.reading import read_facts
    from qgraph.reporting.write import report as write

    facts = read_facts(directory)
    if as_json:
        print(json.dumps(to_json(facts)))
        return
    page = write(directory)
    out = console()
    out.print(facts.verdict, soft_wrap=True)
    out.print(f"\nwritten to {page}, open it in a browser:", soft_wrap=True)
    out.print(f"  {page.resolve().as_uri()}", soft_wrap=True)
