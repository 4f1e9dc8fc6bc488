"""Search for the best plan for a network.

Point estimates select each step. The final plan is used only if it is significantly closer to float
than that of `fast` on the samples that selected the steps; and on others, unless it is so even if
each plan that was tried counts as a test.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from qgraph.choices import CalibrationMethod, Effort, Equalization, chosen
from qgraph.errors import ExactnessError
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.pipelines import USUAL, Pipeline
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import Profile
from qgraph.quant.samples.data import learning_size, thinned
from qgraph.recipes import CLEAN, FOLD
from qgraph.static.agreement import Agreement
from qgraph.static.comparison import Comparison, FloatOutputs
from qgraph.static.preparations import Preparations
from qgraph.static.sample_parts import Split
from qgraph.static.shared_build import PlannedNetwork, SharedBuild
from qgraph.stopping import accept_interrupt
from qgraph.transforms.scale_inputs import scalable_inputs

USUAL_EFFORT = Effort.DEFAULT
TRIED_METHODS = (
    CalibrationMethod.KL_J,
    CalibrationMethod.MSE,
    CalibrationMethod.PERCENTILE,
    CalibrationMethod.MAX,
)
TRIED = 4  # plans are tried on a quarter of the samples that corrections use
Step = Callable[[Plan], Sequence[Plan]]  # returns alternatives to the best plan so far
BUDGET, CTRL_C = "the budget of seconds", "Ctrl-C"  # events that end a search early
SAFE = Plan(
    constant_channels=0.03,
    equalize=Equalization.BIASES,
    method=CalibrationMethod.MSE,
    correct_bias=True,
)
# The best plan of most networks with batch norms, so `default` tries it before single steps.
# Reconstruction compensates for the noise of weights that this equalization causes.
BALANCED = Plan(equalize=Equalization.NOISE, method=CalibrationMethod.MSE, reconstruct=True)
# Steps that usually help, for runs without data, where nothing can be compared. Real inputs have
# longer tails than generated ones, so thresholds of generated ones must not clip anything.
DATA_FREE = replace(SAFE, absorb=True, method=CalibrationMethod.MAX)


@dataclass(frozen=True)
class Trial:
    """A plan that was tried, its result on the comparison part, and its duration."""

    plan: Plan
    comparison: Comparison
    seconds: float

    @property
    def agreement(self) -> Agreement:
        return self.comparison.agreement


@dataclass(frozen=True)
class Search:
    """Plans that were tried: the one to use, then the others, the best first.

    `ended`: the event that ended the search early, if any.
    """

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
    preparations: Preparations | None = None,
) -> Search:
    """Try plans.

    effort: `plain` uses `start`, `fast` compares it with one plan that usually helps. `default`
    tries `BALANCED`, and other ranges for it if that is the best so far; if not, it continues from
    the best and tries each step in addition to those chosen so far. `thorough` tries the steps
    twice, and `BALANCED`.
    The result of the last two is used only if it is significantly better than that of `fast`.
    budget: seconds after which no trial starts. memory: see `calibrate`. Ctrl-C ends the
    search, and the best result so far is kept. Steps with passes that `pipeline` does not allow
    are not tried. preparations: of `loaded` by `pipeline`.
    """
    chosen(Effort, effort, "effort")
    original = loaded.copy()
    PassManager(pipeline.kept(CLEAN)).run(original)
    norms = any(node.op == "batch_norm" for node in original.nodes.values())
    PassManager(pipeline.kept(FOLD)).run(original)
    scalable = profile.scaled_inputs and bool(scalable_inputs(original))
    steps = _steps(effort, inputs=scalable, norms=norms)
    known = preparations or Preparations(loaded, pipeline)
    bench = _Bench(loaded, original, profile, parts, memory, known)
    deadline = math.inf if budget is None else time.perf_counter() + budget
    trials: list[Trial] = []
    safe: Trial | None = None  # the result of `fast`

    def attempt(plan: Plan) -> None:
        trial = bench.trial(plan)
        trials.append(trial)
        trials.sort(key=lambda trial: -trial.agreement.sqnr)
        on_trial(trial)

    def explore() -> str:
        nonlocal safe
        for alternatives in steps:
            for plan in map(pipeline.reduced, alternatives(trials[0].plan)):
                if any(trial.plan == plan for trial in trials):
                    continue
                if time.perf_counter() > deadline:
                    return BUDGET
                with suppress(ExactnessError):  # the target does not support the plan
                    if all(bench.network_of(plan) != bench.network_of(t.plan) for t in trials):
                        attempt(plan)
            safe = safe or trials[0]
            bench.shared.forget_all_but(trials[0].plan)
            known.forget_all_but([trials[0].plan, safe.plan])
        return ""

    attempt(start)
    try:
        ended = explore()
    except KeyboardInterrupt:
        accept_interrupt()
        ended = CTRL_C
    best = trials[0]
    if safe is None or best is safe:
        return Search(trials, ended)
    certain = best.comparison.certainly_nearer(safe.comparison)
    beyond_chance = best.comparison.certainly_nearer(safe.comparison, len(trials))
    fresh = parts.exchanged(loaded) if certain and not (beyond_chance or ended) else None
    if fresh is not None and time.perf_counter() > deadline:
        ended = BUDGET
    elif fresh is not None:
        try:
            again = _Bench(loaded, original, profile, fresh, memory, known)
            certain = again.certainly_nearer(best.plan, safe.plan)
        except KeyboardInterrupt:
            accept_interrupt()
            ended = CTRL_C
    return Search(trials if certain else [safe, *(t for t in trials if t is not safe)], ended)


class _Bench:
    """Builds plans from some samples and compares them with float on others."""

    def __init__(
        self,
        loaded: Graph,
        original: Graph,
        profile: Profile,
        parts: Split,
        memory: int | None,
        preparations: Preparations,
    ) -> None:
        subset = thinned(loaded, parts.calibration, learning_size(parts.calibration) // TRIED)
        self.shared = SharedBuild(loaded, profile, subset, memory, preparations)
        self.reference = FloatOutputs(original, parts.comparison)

    def trial(self, plan: Plan) -> Trial:
        """Build and compare a plan. Raises ExactnessError if the target does not support it."""
        started = time.perf_counter()
        found = self.reference.compare(self.shared.build(plan))
        return Trial(plan, found, time.perf_counter() - started)

    def network_of(self, plan: Plan) -> PlannedNetwork:
        """Equal for plans whose trials would be equal."""
        return self.shared.network_of(plan)

    def certainly_nearer(self, plan: Plan, other: Plan) -> bool:
        """Whether a plan is significantly better; False if the target does not support it."""
        try:
            return self.trial(plan).comparison.certainly_nearer(self.trial(other).comparison)
        except ExactnessError:
            return False


def steps_of(effort: Effort) -> int:
    """The largest number of plans that `search` tries."""
    steps = _steps(effort, inputs=True, norms=True)
    return 1 + sum(max(len(step(best)) for best in (PLAIN, BALANCED)) for step in steps)


def _steps(effort: Effort, inputs: bool, norms: bool) -> Iterator[Step]:
    """The steps of a search.

    inputs: whether there are inputs with scalable features. norms: whether there are batch norms.
    """

    def scale(best: Plan) -> Sequence[Plan]:
        return [replace(best, scale_inputs=scaled) for scaled in (True, False)] if inputs else []

    def equalize(best: Plan) -> Sequence[Plan]:
        kinds = Equalization.WEIGHTS, Equalization.BIASES, Equalization.OFF
        return [replace(best, equalize=kind) for kind in kinds]

    def constants(best: Plan) -> Sequence[Plan]:
        ratios = (0.0, 0.03, 0.1, 0.3) if norms else ()
        return [replace(best, constant_channels=ratio) for ratio in ratios]

    def methods(best: Plan) -> Sequence[Plan]:
        return [replace(best, method=method) for method in TRIED_METHODS]

    def corrections(best: Plan) -> Sequence[Plan]:
        kinds = ((True, False), (False, True), (False, False))
        return [replace(best, reconstruct=r, correct_bias=c) for r, c in kinds]

    def balanced(best: Plan) -> Sequence[Plan]:
        return [replace(BALANCED, scale_inputs=best.scale_inputs)] if norms else []

    def other_ranges(best: Plan) -> Sequence[Plan]:
        kinds = [kind for kind in Equalization if kind.by_noise and best.equalize.by_noise]
        return [replace(best, equalize=kind) for kind in kinds]

    def unless_balanced(step: Step) -> Step:
        return lambda best: [] if best.equalize.by_noise else step(best)

    def rarely(best: Plan) -> Sequence[Plan]:
        output = replace(best, method=CalibrationMethod.OUTPUT)
        return [output, replace(best, absorb=True)] if norms else [output]

    if effort != Effort.PLAIN:
        yield lambda best: [replace(SAFE, scale_inputs=inputs)]
    # Reconstruction takes longest, so plans are first compared without it.
    ladder = equalize, constants, methods, corrections
    if effort == Effort.DEFAULT:
        yield from (scale, balanced, other_ranges, *map(unless_balanced, ladder))
    if effort == Effort.THOROUGH:
        # Again: a step that did not help before reconstruction may help after it.
        again = equalize, constants, corrections
        yield from (scale, *ladder, balanced, other_ranges, rarely, *again)
