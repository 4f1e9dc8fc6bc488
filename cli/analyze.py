"""`qgraph analyze`: which layers hurt, and why."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext, redirect_stdout
from typing import Annotated

import typer

from qgraph.cli.options import (
    Budget,
    Calibration,
    EffortOption,
    Inputs,
    InputShapes,
    Json,
    Limit,
    MethodOption,
    Model,
    Outputs,
    PlanOption,
    Profile,
    check_model,
    names,
    shapes,
)


def analyze(
    model: Model,
    calibration: Calibration = None,
    profile: Profile = "graffitist-int8",
    method: MethodOption = None,
    effort: EffortOption = None,
    plan: PlanOption = None,
    budget: Budget = None,
    limit: Limit = None,
    inputs: Inputs = None,
    outputs: Outputs = None,
    input_shape: InputShapes = None,
    top: Annotated[
        int, typer.Option(min=1, metavar="N", help="Show so many of the worst layers.")
    ] = 15,
    as_json: Json = False,
) -> None:
    """Show which layers hurt, the worst first, and why; write nothing.

    Each layer is quantized alone, and all but it, and compared with the float network.
    """
    from qgraph import compiler
    from qgraph.artifacts import manifest
    from qgraph.cli.console import import_tensorflow_quietly, progress_bar
    from qgraph.cli.tables import print_next_steps, print_sensitivity
    from qgraph.quant.data import check_source
    from qgraph.quant.profile import load_profile

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
            effort=chosen[0],
            plan=plan,
            budget=budget,
            method=chosen[1],
            inputs=names(inputs),
            outputs=names(outputs),
            input_shapes=input_shapes,
            limit=limit,
            sensitivity=True,
            progress=progress,
        )
    found = manifest(result)
    if as_json:
        kept = ("model", "profile", "plan_spec", "agreement", "sensitivity")
        print(json.dumps({key: found[key] for key in kept}))
        return
    print_sensitivity(found, top)
    print_next_steps(model, calibration, found)
