"""`qgraph quantize`: a trained network to a fixed-point one."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext, redirect_stdout
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from qgraph.cli.options import (
    Inputs,
    InputShapes,
    Json,
    Model,
    Outputs,
    Profile,
    check_model,
    names,
    shapes,
)


class Mode(str, Enum):
    """How weights and thresholds are found."""

    static = "static"


class Method(str, Enum):
    """The methods of `qgraph.quant.thresholds`, which takes too long to import for `--help`."""

    kl_j = "kl_j"
    max = "max"
    percentile = "percentile"
    mse = "mse"


class Effort(str, Enum):
    """How much is tried to keep the network's accuracy, as in `qgraph.static`."""

    plain = "plain"
    fast = "fast"
    default = "default"
    thorough = "thorough"


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
            metavar="DATA",
            help="A few dozen typical inputs: a .npy, a .npz with an array for each input, "
            "or module:function that returns a tf.data.Dataset.",
        ),
    ] = None,
    mode: Annotated[
        Mode, typer.Option(metavar="MODE", help="static: thresholds from data, without training.")
    ] = Mode.static,
    profile: Profile = "graffitist-int8",
    method: Annotated[
        Method | None,
        typer.Option(
            metavar="METHOD",
            help="Thresholds of activations: kl_j, max, percentile or mse. [default: kl_j]",
        ),
    ] = None,
    effort: Annotated[
        Effort | None,
        typer.Option(
            metavar="EFFORT",
            help="plain: quantize as it is; fast, default, thorough: try what helps on part of "
            "the samples, and keep what does. [default: plain]",
        ),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="STEPS",
            help="Exactly these steps, in place of an effort: equalize=biases,correct-bias,"
            "method=mse. A wrong one lists what is there.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Begin no further trial after so long."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Use only the first N samples.")
    ] = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    input_shape: InputShapes = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what an earlier run wrote to the directory.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Quantize a network; write the bit-accurate graph and all that belongs to it.

    What goes wrong is found before the directory is touched: it is written whole or not at all.
    """
    from qgraph import compiler
    from qgraph.artifacts import check_output, read_manifest
    from qgraph.cli.console import import_tensorflow_quietly, progress_bar
    from qgraph.cli.tables import print_files, print_quantized
    from qgraph.quant.data import check_source
    from qgraph.quant.profile import load_profile

    # First what is quick to check: TensorFlow's import takes seconds.
    check_output(output, force=force)
    check_model(model)
    check_source(calibration)
    target, input_shapes = load_profile(profile), shapes(input_shape)
    chosen = effort and effort.value, method and method.value
    compiler.first_plan(plan, *chosen)
    with redirect_stdout(sys.stderr) if as_json else nullcontext(), progress_bar() as progress:
        progress("loading", 0, 1)
        import_tensorflow_quietly()
        sys.path.insert(0, os.getcwd())  # for a calibration from module:function
        result = compiler.quantize(
            model,
            calibration,
            profile=target,
            mode=mode.value,
            effort=chosen[0],
            plan=plan,
            budget=budget,
            method=chosen[1],
            inputs=names(inputs),
            outputs=names(outputs),
            input_shapes=input_shapes,
            limit=limit,
            progress=progress,
        )
        progress("writing", 0, 1)
        result.save(output, force=force)
    manifest = read_manifest(output)
    if as_json:
        print(json.dumps({"output": str(output), **manifest}))
        return
    print_quantized(manifest)
    print_files(output)
