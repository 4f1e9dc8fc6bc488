"""`qgraph export`: write a quantized network in another format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import Accelerator, CodeLayout, ExportFormat
from qgraph.cli.choice import choice
from qgraph.cli.options import OUTPUT_DIRECTORY, Json
from qgraph.words import alternatives

if TYPE_CHECKING:
    from qgraph.backends.network_forms import Network


def export(
    directory: Annotated[
        Path, typer.Argument(help=f"{OUTPUT_DIRECTORY} Or a static policy (.qpol).")
    ],
    form: Annotated[
        ExportFormat,
        choice(
            ExportFormat,
            "format",
            "--format",
            "-f",
            metavar="FORMAT",
            help=f"Format to write: {alternatives(ExportFormat)}.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Output directory, new or empty.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the files that an earlier export wrote.")
    ] = False,
    samples: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="With --format vectors: number of calibration samples to write.",
        ),
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(
            "--layer",
            metavar="NAME",
            help="With --format vectors: a layer to write. Repeatable.",
            show_default="all layers",
        ),
    ] = None,
    accelerators: Annotated[
        list[Accelerator] | None,
        choice(
            Accelerator,
            "accelerator",
            "--accelerator",
            metavar="NAME",
            help="With --format tosa: compile the file with Vela for an Arm Ethos-U and show its "
            f"estimates: {alternatives(Accelerator)}. Repeatable.",
            show_default="none",
        ),
    ] = None,
    codes: Annotated[
        bool,
        typer.Option(
            "--codes", help="With --format tflite: codes as inputs and outputs instead of floats."
        ),
    ] = False,
    layout: Annotated[
        CodeLayout | None,
        choice(
            CodeLayout,
            "layout",
            "--layout",
            metavar="NAME",
            help="With --format c: a folder for a build system, with an example that runs: "
            f"{alternatives(CodeLayout)}.",
            show_default="only the files of the network",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a quantized network in a format that computes the same codes, bit for bit.

    If a format cannot represent a layer, nothing is written and the error names the layer.
    """
    from qgraph.cli.console import at_work, print_next, print_table, print_warnings
    from qgraph.exports import FORMS, index_of
    from qgraph.exports import export as write
    from qgraph.exports import form as checked

    options: dict[str, object] = {} if samples is None else {"samples": samples}
    if layers:
        options["layers"] = tuple(layers)
    if accelerators:
        options["accelerators"] = tuple(accelerators)
    if codes:
        options["codes"] = True
    if layout:
        options["layout"] = layout
    checked(form, options)
    with at_work(as_json):
        files = write(_network(directory), form, output, force=force, options=options)
    warnings = index_of(output).warnings
    if as_json:
        facts = {"output": str(output), "format": form, "files": files, "warnings": [*warnings]}
        print(json.dumps(facts))
        return
    rows = [(name, f"{size:,}") for name, size in _by_folder(files).items()]
    print_table(
        f"written to {output}: {FORMS[ExportFormat(form)].description}", ("=file", ">bytes"), rows
    )
    _print_estimates(output)
    if directory.is_dir():
        print_next(["verify", str(directory), "--files", str(output)])
    print_warnings(warnings)


def _print_estimates(output: Path) -> None:
    from qgraph.backends.vela import read_estimates
    from qgraph.cli.console import print_table

    rows = [
        (
            one.accelerator,
            f"{one.cycles:,}",
            f"{one.milliseconds:.3f}",
            f"{one.products:,}",
            *(f"{size:,}" for size in (one.sram, one.dram, one.flash)),
            f"{one.cpu_operators:,}",
        )
        for one in read_estimates(output)
    ]
    if rows:
        names = ("=accelerator", ">cycles", ">ms", ">products", ">SRAM", ">DRAM", ">flash")
        print_table("Vela's estimates, in bytes of memory", (*names, ">CPU ops"), rows)


def _network(path: Path) -> Network:
    from qgraph.rl.policy import load_policy
    from qgraph.stored import load_network

    return load_policy(path).network if path.is_file() else load_network(path)


def _by_folder(files: dict[str, int]) -> dict[str, int]:
    """Bytes of each file and each folder at the top level."""
    sizes: dict[str, int] = {}
    for name, size in files.items():
        folder, inside, _ = name.partition("/")
        sizes[folder + inside] = sizes.get(folder + inside, 0) + size
    return sizes
