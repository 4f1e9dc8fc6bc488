"""The search for the plan that serves a network best."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from qgraph.choices import CalibrationMethod, Effort, Equalization, chosen
from qgraph.errors import ExactnessError
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.pipelines import USUAL, Pipeline
from qgraph.quant.data import learnt_from, thinned
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import Profile
from qgraph.recipes import CLEAN, FOLD
from qgraph.rewrite.trace import Trace
from qgraph.static.agreement import Agreement, agreement
from qgraph.static.build import build
from qgraph.static.sample_parts import Split
from qgraph.transforms.scale_inputs import scalable_inputs

USUAL_EFFORT = Effort.DEFAULT
TRIED_METHODS = (
    CalibrationMethod.KL_J,
    CalibrationMethod.MSE,
    CalibrationMethod.PERCENTILE,
    CalibrationMethod.MAX,
)
TRIED = 2  # plans are tried on half as many samples as corrections learn from
SAFE = Plan(
    constant_channels=0.03,
    equalize=Equalization.BIASES,
    method=CalibrationMethod.MSE,
    correct_bias=True,
)
# Without data nothing can be compared: what mostly helps. Real numbers have longer tails than
# invented ones, of which nothing should be clipped then.
DATA_FREE = replace(SAFE, absorb=True, method=CalibrationMethod.MAX)


@dataclass(frozen=True)
class Trial:
    """One plan that was tried: what it gave on the comparison part, and how long it took."""

    plan: Plan
    agreement: Agreement
    seconds: float


@dataclass(frozen=True)
class Search:
    """Plans that were tried, the best one first; `ended`: by what, if before its end."""

    trials: Sequence[Trial]
    ended: str = ""


def search(
    loaded: Graph,
    profile: Profile,
    parts: Split,
    effort: Effort,
    start: Plan = PLAIN,
    budget: float | None = None,
    memory: int | None = None,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    pipeline: Pipeline = USUAL,
) -> Search:
    """Try plans.

    `effort`: `plain` takes `start` as it is, `fast` compares it with one plan that mostly helps,
    `default` goes on from the better of both and tries each step on top of what has helped so far,
    `thorough` goes through the steps twice. More effort never keeps a plan that is worse on the
    comparison part than what less effort finds. `budget` in seconds: no trial begins after it.
    memory: see `calibrate`. Ctrl-C ends the search; the best so far is kept. Steps that add passes
    which `pipeline` does not allow are not tried.
    """
    chosen(Effort, effort, "effort")
    original = loaded.copy()
    PassManager(pipeline.kept(CLEAN)).run(original)
    norms = any(node.op == "batch_norm" for node in original.nodes.values())
    PassManager(pipeline.kept(FOLD)).run(original)
    scalable = profile.scaled_inputs and bool(scalable_inputs(original))
    steps = _steps(effort, inputs=scalable, norms=norms)
    few = thinned(loaded, parts.calibration, learnt_from(parts.calibration) // TRIED)
    began = time.perf_counter()
    trials: list[Trial] = []

    def attempt(plan: Plan) -> None:
        started = time.perf_counter()
        _, graph = build(loaded, profile, plan, few, Trace(), memory=memory, pipeline=pipeline)
        found = agreement(original, graph, parts.comparison)
        trial = Trial(plan, found, time.perf_counter() - started)
        trials.append(trial)
        trials.sort(key=lambda trial: -trial.agreement.sqnr)
        on_trial(trial)

    attempt(start)
    try:
        for alternatives in steps:
            for plan in map(pipeline.reduced, alternatives(trials[0].plan)):
                if any(trial.plan == plan for trial in trials):
                    continue
                if budget is not None and time.perf_counter() - began > budget:
                    return Search(trials, "the budget of seconds")
                with suppress(ExactnessError):  # a plan that the target cannot carry
                    attempt(plan)
    except KeyboardInterrupt:
        return Search(trials, "Ctrl-C")
    return Search(trials)


def steps_of(effort: Effort) -> int:
    """How many plans `search` tries at most."""
    return 1 + sum(len(step(PLAIN)) for step in _steps(effort, inputs=True, norms=True))


def _steps(effort: Effort, inputs: bool, norms: bool) -> Iterator[Callable[[Plan], Sequence[Plan]]]:
    """Each step makes alternatives to the best plan so far.

    `inputs`: there are some whose features can be scaled. `norms`: there are batch norms.
    """

    def scale(best: Plan) -> Sequence[Plan]:
        return [replace(best, scale_inputs=scaled) for scaled in (True, False)] if inputs else []

    def equalize(best: Plan) -> Sequence[Plan]:
        kinds = Equalization.WEIGHTS, Equalization.BIASES, Equalization.OFF
        return [replace(best, equalize=kind) for kind in kinds]

    def constants(best: Plan) -> Sequence[Plan]:
        ratios = (0.0, 0.03, 0.1, 0.3) if norms else ()
        return [replace(best, constant_channels=ratio) for ratio in ratios]

    def corrections(best: Plan) -> Sequence[Plan]:
        kinds = ((False, True), (True, False), (True, True), (False, False))
        return [replace(best, reconstruct=r, correct_bias=c) for r, c in kinds]

    def methods(best: Plan) -> Sequence[Plan]:
        return [replace(best, method=method) for method in TRIED_METHODS]

    def rarely(best: Plan) -> Sequence[Plan]:
        output = replace(best, method=CalibrationMethod.OUTPUT)
        if not norms:
            return [output]
        # Rounding for the layer's output makes up for the weight noise that this leaves.
        balanced = replace(best, equalize=Equalization.NOISE, reconstruct=True, correct_bias=False)
        return [output, balanced, replace(best, absorb=True)]

    if effort != Effort.PLAIN:
        yield lambda best: [replace(SAFE, scale_inputs=inputs)]
    if effort in (Effort.DEFAULT, Effort.THOROUGH):
        yield from (scale, equalize, constants, corrections, methods)
    if effort == Effort.THOROUGH:
        # Once more: what did not help before weights were reconstructed may help now.
        yield from (rarely, equalize, constants, corrections)
