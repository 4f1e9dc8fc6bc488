"""Plans that differ in one step or constant, to show the effect of the step on two networks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

from benchmarks.real.cases import BY_MSE, Case, cifar, mobilenet_v1
from benchmarks.real.measure import statistics_weight
from benchmarks.tables import Table
from qgraph.choices import Equalization
from qgraph.quant.plan import Plan

EQUALIZED = {
    by: replace(BY_MSE, equalize=by, correct_bias=True)
    for by in (Equalization.BIASES, Equalization.WEIGHTS)
}
RECONSTRUCTED = replace(BY_MSE, equalize=Equalization.BIASES, reconstruct=True)
SHARES = (0.0, 0.1, 0.3, 1.0)


def tables() -> Iterator[Table]:
    table = Table(
        "Plans that differ in one step",
        {"network": "", "question": "", "variant": "", "SQNR dB": ".1f", "as float": ".1%"},
        notes=["profile graffitist-int8; each plan is in `benchmarks/real/plan_variants.py`"],
    )
    for case in (cifar(), mobilenet_v1()):
        table.notes.append(case.images)
        for question, variant, plan, share in variants():
            changed = nullcontext() if share is None else statistics_weight(share)
            with changed:
                table.add(case.title, question, variant, *_measured(case, plan))
    yield table


def variants() -> Iterator[tuple[str, str, Plan, float | None]]:
    """Each question with its variants: the plan, and the weight of batch-norm statistics if it is
    set.
    """
    for by, plan in EQUALIZED.items():
        question = f"factors of `equalize={by}`"
        yield question, "free", plan, None
        yield question, "powers of two", replace(plan, powers_of_two=True), None
    plan = EQUALIZED[Equalization.BIASES]
    yield "high biases", "kept", plan, None
    yield "high biases", "absorbed", replace(plan, absorb=True), None
    for share in SHARES:
        yield "share of remembered inputs", f"{share:g}", RECONSTRUCTED, share


def _measured(case: Case, plan: Plan) -> tuple[float, float | None]:
    found = case.agreement(case.built(plan)[1])
    return found.sqnr, found.top1
