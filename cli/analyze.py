"""`qgraph analyze`: show which layers cost accuracy, and why."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from qgraph.choices import Effort
from qgraph.cli.network_options import LoadOptions, PlanOptions
from qgraph.cli.option_groups import with_groups
from qgraph.cli.options import Calibration, Json, Model, check_model, given, several_bits

FACTS_SHOWN = ("model", "profile", "effort", "plan_spec", "agreement", "sensitivity", "warnings")


@with_groups
def analyze(
    context: typer.Context,
    model: Model,
    calibration: Calibration = None,
    *,
    search: PlanOptions,
    loading: LoadOptions,
    mean_bits: Annotated[
        str | None,
        typer.Option(
            metavar="BITS,...",
            help="Measure mixed precision instead, for these mean numbers of bits of a weight, "
            "such as 3,4,5,6,8.",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of layers to show, the worst first.")
    ] = 15,
    as_json: Json = False,
) -> None:
    """Show which layers cost accuracy, and why. No files are written.

    For each layer, two networks are compared with the float network: one where only this layer is
    quantized, and one where all others are. With --mean-bits, bits chosen per layer are compared
    with the same bits in all layers.
    """
    check_model(model)
    from qgraph import compiler
    from qgraph.cli.console import at_work, print_warnings
    from qgraph.cli.tables import print_mixed, print_next_bits, print_next_steps, print_sensitivity
    from qgraph.pipelines import USUAL
    from qgraph.quant.profile import load_profile
    from qgraph.quant.samples.data import check_source
    from qgraph.records import to_json, to_object
    from qgraph.static.cautions import SEE_LAYERS
    from qgraph.stored.write import manifest

    check_source(calibration)
    load_profile(search.profile)
    # A search would hide the faults that it corrects.
    effort = search.effort or (Effort.PLAIN if search.plan is None else None)
    search.check(USUAL, effort)
    budgets = several_bits(mean_bits) if mean_bits is not None else []
    options = search.keywords() | loading.keywords() | {"effort": effort}
    with at_work(as_json) as progress:
        options["progress"] = progress
        if budgets:
            mixed = compiler.pareto(model, calibration, budgets, **options)
            bits = mixed.facts(*mixed.chosen)
        else:
            result = compiler.quantize(model, calibration, sensitivity=True, **options)
            found = manifest(result)
    if as_json and budgets:
        print(json.dumps(to_json(bits)))
    elif as_json:
        entries = to_object(found)
        print(json.dumps({key: value for key, value in entries.items() if key in FACTS_SHOWN}))
    elif budgets:
        print_mixed(bits)
        print_next_bits(given(context), budgets)
    else:
        print_sensitivity(found, top)
        print_next_steps(given(context, without=("effort", "plan")), found)
        print_warnings([text.removesuffix(SEE_LAYERS) for text in found.facts.warnings])
