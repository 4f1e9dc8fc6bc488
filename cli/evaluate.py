"""`qgraph evaluate`: compare the accuracy of a quantized network and its float network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import Level
from qgraph.cli.options import OUTPUT_DIRECTORY, Json, LevelOption, Limit, Threads

if TYPE_CHECKING:
    from qgraph.evaluation import Evaluation, OutputScore


def evaluate(
    directory: Annotated[Path, typer.Argument(help=OUTPUT_DIRECTORY)],
    data: Annotated[
        str,
        typer.Option(
            "--data",
            "-d",
            metavar="DATA",
            help="Labelled data: a .npz with an array for each input and an array `labels` "
            "(`labels/NAME` for each of several outputs), a directory of such files, or "
            "module:function that returns a tf.data.Dataset.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Output that the labels belong to, if there are several."
        ),
    ] = None,
    limit: Limit = None,
    threads: Threads = 1,
    level: LevelOption = Level.AUTO,
    as_json: Json = False,
) -> None:
    """Compare the float and the quantized network on labelled data.

    Shows accuracy or error, sizes, and the time per sample.
    """
    from qgraph.cli.console import at_work, print_next, print_warnings
    from qgraph.evaluation import evaluate as found_by

    with at_work(as_json) as progress:
        found = found_by(
            directory,
            data,
            output=output,
            limit=limit,
            threads=threads,
            level=level,
            progress=progress,
        )
    if as_json:
        print(json.dumps({"directory": str(directory), **found.facts()}))
        return
    print_evaluation(found, f"of {data}")
    print_next(["report", str(directory)])
    print_warnings(found.warnings)


def print_evaluation(found: Evaluation, where: str) -> None:
    """Print scores of both networks, sizes, and the time per sample."""
    from qgraph.cli.console import console, print_table
    from qgraph.words import counted

    for output in found.outputs:
        several = f"output {output.output}, " if len(found.outputs) > 1 else ""
        columns, rows = _table(output, found)
        print_table(f"{several}{counted(found.samples, 'sample')} {where}", columns, rows)
        if output.same is not None:
            console().print(f"Both networks give the same answer on {output.same:.2%} of them.")
    out = console()
    out.print(f"Weights take {found.sizes.compression:.2f} times fewer bytes.")
    if found.speed is None:
        out.print("The integer reference ran this network, because the engine cannot.\n")
    else:
        threads = counted(found.speed.threads, "thread")
        out.print(
            f"{found.speed.milliseconds:.3f} ms per sample by the integer engine "
            f"({found.speed.level}, {threads}).\n"
        )


def _table(output: OutputScore, found: Evaluation) -> tuple[list[str], list[tuple[str, ...]]]:
    rows = [
        ("float", *output.floating.cells().values(), f"{found.sizes.floating:,}"),
        ("quantized", *output.quantized.cells().values(), f"{found.sizes.quantized:,}"),
    ]
    headings = [f">{heading}" for heading in output.floating.cells()]
    return ["=network", *headings, ">bytes"], rows
