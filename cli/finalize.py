"""`qgraph finalize`: the inference graph of what was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from qgraph.cli.options import ForceDirectory, Json
from qgraph.errors import UsageError


def finalize(
    directory: Annotated[Path, typer.Argument(help="Where `qgraph train` trained.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Directory to write, new or empty.",
            show_default="DIRECTORY/inference",
        ),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Take the last checkpoint, not the best one.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="PREFIX",
            help="Take this checkpoint of TensorFlow, of DIRECTORY/training_graph, which a script "
            "trained.",
        ),
    ] = None,
    force: ForceDirectory = False,
    as_json: Json = False,
) -> None:
    """Write the bit-accurate inference graph of the best checkpoint, as `quantize` writes it.

    The start counts among the checkpoints; before `qgraph train`, it is the only one.
    """
    from qgraph.artifacts import reserve, write
    from qgraph.cli.console import at_work, console
    from qgraph.cli.tables import print_files, print_quantized
    from qgraph.manifest import read_manifest
    from qgraph.records import to_object
    from qgraph.retrain.directory import check_is_written

    if last and checkpoint is not None:
        raise UsageError("--last and --checkpoint exclude each other", hint="leave one out")
    check_is_written(directory)  # before a place for the output is made in it
    target = output or directory / "inference"
    with reserve(target, force=force) as place, at_work(as_json):
        from qgraph import retrain

        write(retrain.finalize(directory, last=last, checkpoint=checkpoint), place)
    manifest = read_manifest(target)
    if as_json:
        print(json.dumps({"output": str(target), **to_object(manifest)}))
        return
    print_quantized(manifest)
    if manifest.facts.training is None:
        console().print("Not trained yet: this is the network that training begins from.\n")
    print_files(target, manifest.facts.warnings)
