"""`qgraph export`: a quantized network in another form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import ExportFormat
from qgraph.cli.choice import choice
from qgraph.cli.options import OUTPUT_DIRECTORY, Json
from qgraph.words import alternatives

if TYPE_CHECKING:
    from qgraph.backends.network_forms import Network


def export(
    directory: Annotated[
        Path, typer.Argument(help=f"{OUTPUT_DIRECTORY} Or a static policy, .qpol.")
    ],
    form: Annotated[
        ExportFormat,
        choice(
            ExportFormat,
            "format",
            "--format",
            "-f",
            metavar="FORMAT",
            help=f"{alternatives(ExportFormat)}.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory, new or empty.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace what an earlier export wrote there.")
    ] = False,
    samples: Annotated[
        int | None, typer.Option(min=0, help="Calibration samples that vectors show.")
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option("--layer", metavar="NAME", help="A layer that vectors show; repeat. All."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a network in a form that computes the same codes, bit for bit.

    A network that a form cannot carry is refused, by the name of the layer.
    """
    from qgraph.cli.console import at_work, print_next, print_table, print_warnings
    from qgraph.exports import FORMS, index_of
    from qgraph.exports import export as write
    from qgraph.exports import form as checked

    options: dict[str, object] = {} if samples is None else {"samples": samples}
    if layers:
        options["layers"] = tuple(layers)
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
    if directory.is_dir():
        print_next(["verify", str(directory), "--files", str(output)])
    print_warnings(warnings)


def _network(path: Path) -> Network:
    from qgraph.rl.policy import load_policy
    from qgraph.stored import load_network

    return load_policy(path).network if path.is_file() else load_network(path)


def _by_folder(files: dict[str, int]) -> dict[str, int]:
    """Bytes by name at the top: of a folder, those of all files in it."""
    sizes: dict[str, int] = {}
    for name, size in files.items():
        folder, inside, _ = name.partition("/")
        sizes[folder + inside] = sizes.get(folder + inside, 0) + size
    return sizes
