"""`qgraph quantize`: a trained network to a fixed-point one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qgraph.cli.options import Inputs, InputShapes, Json, Model, Outputs, names, shapes

if TYPE_CHECKING:
    from qgraph.compiler import Quantized


def quantize(
    model: Model,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory to write, new or empty.")
    ],
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            "-c",
            help="Typical inputs: .npy, .npz, or module:function of a tf.data.",
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option(help="static: thresholds from data, without training.")
    ] = "static",
    profile: Annotated[
        str, typer.Option(help="Target profile: a built-in name or a YAML file.")
    ] = "graffitist-int8",
    method: Annotated[
        str, typer.Option(help="Activation thresholds: kl_j, max, percentile, mse.")
    ] = "kl_j",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only the first samples of the data.")
    ] = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    input_shape: InputShapes = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output directory.")] = False,
    as_json: Json = False,
) -> None:
    """Quantize a network and write the bit-accurate inference graph with all that belongs to it."""
    from qgraph import compiler
    from qgraph.artifacts import layers
    from qgraph.cli.console import console, import_tensorflow_quietly, progress_bar
    from qgraph.files import check_free

    check_free(output, force)
    import_tensorflow_quietly()
    with progress_bar(quiet=as_json) as progress:
        result = compiler.quantize(
            model,
            calibration,
            profile=profile,
            mode=mode,
            method=method,
            inputs=names(inputs),
            outputs=names(outputs),
            input_shapes=shapes(input_shape),
            limit=limit,
            progress=progress,
        )
        progress("writing", 0, 1)
        result.save(output, force=force)
        progress("writing", 1, 1)
    if as_json:
        from qgraph.artifacts import manifest

        print(json.dumps({"output": str(output), **manifest(result)}))
        return
    _print_layers(result, layers(result))
    _print_float_ops(result)
    files = ", ".join(sorted(p.name + "/" * p.is_dir() for p in output.iterdir()))
    console().print(f"\nwritten to [bold]{output}[/]: {files}")
    console().print(f"next: qgraph inspect {output / 'inference.pb'}")


def _print_layers(result: Quantized, found: list[dict[str, Any]]) -> None:
    from qgraph.cli.console import console, table

    listing = table(
        f"{len(found)} layers, profile {result.profile.name}",
        "layer", "op", ">weight", ">output", ">acc bits", "exact in", ">SQNR dB",
    )  # fmt: skip
    for layer in found:
        sqnr = layer["sqnr_db"]
        listing.add_row(
            layer["name"],
            layer["op"],
            f"{layer['weight_bits']}b {_scale(layer['weight_exponent'])}",
            f"{layer['output_bits']}b {_scale(layer['output_exponent'])}"
            if layer["output"]
            else "-",
            str(layer["accumulator_bits"]),
            layer["exact_in"],
            "-" if sqnr is None else f"{sqnr:.1f}",
        )
    console().print(listing)


def _scale(exponent: Any) -> str:
    if isinstance(exponent, tuple | list):
        return f"2^-[{min(exponent)}..{max(exponent)}]"
    return f"2^{-exponent}" if exponent is not None else "?"


def _print_float_ops(result: Quantized) -> None:
    from qgraph.artifacts import float_ops
    from qgraph.cli.console import console

    kept = float_ops(result.graph)
    if kept:
        shown = ", ".join(f"{op['name']} ({op['op']})" for op in kept[:8])
        more = f" and {len(kept) - 8} more (manifest.json)" if len(kept) > 8 else ""
        console().print(f"\nfloat, outside the integer graph: {shown}{more}")
