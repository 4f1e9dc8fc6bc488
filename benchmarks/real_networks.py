"""Real networks in fixed point: ``python -m benchmarks.real_networks [--only NAME] [--json FILE]``.

Networks and images come from package registries into a cache (`benchmarks/assets.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from benchmarks.real import (
    cifar,
    constant_channels,
    data_free,
    distillation,
    efforts,
    families,
    file_types,
    formats,
    images_at_4_bits,
    mixed,
    mobilenet,
    noise_factors,
    photos,
    plan_choice,
    plan_variants,
    policies,
    reading,
    recurrent,
    speech,
    text,
    thresholds,
    trained_by_float,
    unet,
    vision_transformer,
)
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.quiet import import_tensorflow_quietly

NETWORKS: dict[str, Callable[[], Iterator[Table]]] = {
    "cifar": cifar.tables,
    "mobilenet": mobilenet.tables,
    "photos": photos.tables,
    "formats": formats.tables,
    "policies": policies.tables,
    "efforts": efforts.tables,
    "constant-channels": constant_channels.tables,
    "plan-variants": plan_variants.tables,
    "plan-choice": plan_choice.tables,
    "noise-factors": noise_factors.tables,
    "noise-bits": noise_factors.bits_tables,
    "text": text.tables,
    "reading": reading.tables,
    "recurrent": recurrent.tables,
    "speech": speech.tables,
    "file-types": file_types.tables,
    "data-free": data_free.tables,
    "foreign-samples": data_free.foreign_tables,
    "thresholds": thresholds.tables,
    "trained-by-float": trained_by_float.tables,
    "images-at-4-bits": images_at_4_bits.tables,
    "mixed": mixed.tables,
    "families": families.tables,
    "distillation": distillation.tables,
    "vision-transformer": vision_transformer.tables,
    "unet": unet.tables,
}


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(NETWORKS)}; may be repeated.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure the networks and print a table for each."""
    unknown = set(only or ()) - set(NETWORKS)
    if unknown:
        raise typer.BadParameter(f"unknown part {sorted(unknown)[0]}; choose {', '.join(NETWORKS)}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import_tensorflow_quietly()
    tables = (table for name in only or NETWORKS for table in NETWORKS[name]())
    report("benchmarks.real_networks", tables, json_file)


if __name__ == "__main__":
    typer.run(main)
