"""What a person sees of a quantized network; all of it comes from its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qgraph.artifacts import FILES
from qgraph.cli.console import Names, console, print_table

FLOAT_OPS_SHOWN = 8
LEGEND = (
    "acc bits: what the accumulator needs; exact in: the float type that holds its sums exactly; "
    "SQNR: the output against the float network\n"
)


def print_quantized(manifest: Mapping[str, Any]) -> None:
    """The layers, and what stays float."""
    found = manifest["layers"]
    print_table(
        f"{len(found)} layers, profile {manifest['profile']['name']}",
        ("layer", "=op", ">weight", ">output", ">acc\nbits", "=exact\nin", ">SQNR\ndB"),
        [_layer(layer) for layer in found],
    )
    console().print(LEGEND, style="dim")
    kept = manifest["float_ops"]
    if kept:
        shown = ", ".join(f"{op['name']} ({op['op']})" for op in kept[:FLOAT_OPS_SHOWN])
        more = len(kept) - FLOAT_OPS_SHOWN
        rest = f" and {more} more (see manifest.json)" if more > 0 else ""
        console().print(f"float, outside the integer graph: {shown}{rest}\n")


def _layer(layer: Mapping[str, Any]) -> tuple[Names | str, ...]:
    sqnr = layer["sqnr_db"]
    return (
        Names(layer["name"]),
        layer["op"].removesuffix("_conv2d"),
        f"{layer['weight_bits']}b {_scale(layer['weight_exponent'])}",
        f"{layer['output_bits']}b {_scale(layer['output_exponent'])}" if layer["output"] else "-",
        str(layer["accumulator_bits"]),
        layer["exact_in"],
        "-" if sqnr is None else f"{sqnr:.1f}",
    )


def _scale(exponent: int | list[int] | tuple[int, ...] | None) -> str:
    if isinstance(exponent, tuple | list):
        least, most = -max(exponent), -min(exponent)
        return f"2^{least}" if least == most else f"2^{least}..{most}"
    return f"2^{-exponent}" if exponent is not None else "?"


def print_files(output: Path) -> None:
    """What was written, and what to type next."""
    print_table(
        f"written to {output}",
        ("=file", "what it is"),
        [(name + "/" * (output / name).is_dir(), what) for name, what in FILES.items()],
    )
    console().print(f"next: qgraph report {output}", soft_wrap=True)
