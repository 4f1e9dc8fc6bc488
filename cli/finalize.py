"""`qgraph finalize`: write the inference graph of a trained network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from qgraph.cli.options import ForceDirectory, Json
from qgraph.errors import UsageError


def finalize(
    directory: Annotated[Path, typer.Argument(help="Directory that `qgraph train` trained in.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Output directory, new or empty.",
            show_default="DIRECTORY/inference",
        ),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Use the last checkpoint instead of the best one.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="PREFIX",
            help="Use this TensorFlow checkpoint, which a script wrote while it trained "
            "DIRECTORY/training_graph.",
        ),
    ] = None,
    force: ForceDirectory = False,
    as_json: Json = False,
) -> None:
    """Write the bit-accurate inference graph of the best checkpoint, as `quantize` does.

    The network before training counts as a checkpoint. Before `qgraph train`, it is the only one.
    """
    from qgraph.cli.console import at_work, console
    from qgraph.cli.tables import print_files, print_quantized
    from qgraph.records import to_object
    from qgraph.retrain.directory import check_is_written
    from qgraph.stored.manifest import read_manifest
    from qgraph.stored.write import reserve, write

    if last and checkpoint is not None:
        raise UsageError("--last and --checkpoint exclude each other", hint="leave one out")
    check_is_written(directory)  # before an output folder is created inside it
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
        console().print("Not trained yet: this is the network that training starts from.\n")
    print_files(target, manifest)
