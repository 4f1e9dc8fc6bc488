"""Choice of plan and bits, given by the user or found by measurement."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qgraph.choices import CalibrationMethod, Effort
from qgraph.errors import UsageError
from qgraph.ir.graph import Graph
from qgraph.pipelines import USUAL, Pipeline
from qgraph.progress import Progress
from qgraph.quant.bits import Budget
from qgraph.quant.plan import PLAIN, Plan, parse_plan
from qgraph.quant.profile import Profile
from qgraph.static.facts import ChoiceFacts, TrialFacts
from qgraph.static.mixed import Mixed, search_bits
from qgraph.static.preparations import Preparations
from qgraph.static.sample_parts import Split, split, undivided
from qgraph.static.samples import Samples
from qgraph.static.search import DATA_FREE, USUAL_EFFORT, Search, Trial, search, steps_of
from qgraph.static.units import overridden, widest_within
from qgraph.words import counted


@dataclass(frozen=True)
class PlanRequest:
    """The user's request for a plan.

    plan: this plan, without a search. effort: otherwise, the number of plans that a search tries.
    method: for thresholds, in the first plan. seconds: no trial starts later. bits: a budget of
    bits, if any. memory: bytes of live values above which calibration uses temporary files.
    pipeline: the passes that run. held_out: keep samples for the report, even without a search.
    """

    effort: Effort | None = None
    plan: str | Plan | None = None
    method: CalibrationMethod | None = None
    seconds: float | None = None
    bits: Budget | None = None
    memory: int | None = None
    pipeline: Pipeline = USUAL
    held_out: bool = False


@dataclass(frozen=True)
class Choice:
    """A plan and a profile, whose bits may have been chosen, and how they were found."""

    plan: Plan
    profile: Profile
    effort: Effort
    parts: Split
    search: Search
    mixed: Mixed | None = None
    bits: Budget | None = None

    def facts(self) -> ChoiceFacts:
        """The choice without the durations of trials, so that it is equal in every run."""
        mixed = None
        if self.mixed is not None and self.bits is not None:
            mixed = replace(self.mixed.facts(self.bits), budget=self.bits)
        trials = [TrialFacts(t.plan, t.agreement) for t in self.search.trials]
        return ChoiceFacts(self.effort, self.plan, self.plan.spec(), trials, mixed)

    def warnings(self) -> list[str]:
        """Warnings about how the plan and the bits were found."""
        if not self.search.ended:
            return []
        tried = counted(len(self.search.trials), "plan")
        return [f"{self.search.ended} ended the search after {tried}: the best so far is kept"]


def choose(
    graph: Graph,
    profile: Profile,
    samples: Samples,
    request: PlanRequest,
    progress: Progress,
    preparations: Preparations,
) -> Choice:
    """Choose the plan and bits that `request` leaves open, without the samples for the report.

    graph: the loaded graph. preparations: of the graph, by the pipeline of the request. Raises
    UsageError.
    """
    start, effort = first_plan(request)
    if samples.generated:
        start, effort = plan_without_data(request), Effort.PLAIN
    held_out = effort != Effort.PLAIN or request.bits is not None or request.held_out
    parts = (split if held_out else undivided)(graph, samples.data)
    looked = (
        profile
        if request.bits is None
        else widest_within(graph, profile, request.bits, request.pipeline)
    )
    found = _search(graph, looked, parts, start, effort, request, progress, preparations)
    plan = found.trials[0].plan if found.trials else start
    if samples.generated:
        effort = request.effort or (Effort.PLAIN if request.plan else USUAL_EFFORT)
    choice = Choice(plan, profile, effort, parts, found)
    if request.bits is None:
        return choice
    mixed = search_bits(graph, profile, plan, parts, [request.bits], progress, preparations)
    chosen = overridden(profile, mixed.units, mixed.chosen[request.bits].bits)
    return replace(choice, profile=chosen, mixed=mixed, bits=request.bits)


def pareto(
    graph: Graph,
    profile: Profile,
    samples: Samples,
    request: PlanRequest,
    mean_bits: Sequence[float],
    progress: Progress,
) -> Mixed:
    """Results by mean bits of weights, all with the plan that is best at the fewest bits."""
    start, effort = first_plan(request)
    parts = split(graph, samples.data)
    budgets = [Budget(mean_bits=bits) for bits in mean_bits]
    fewest = budgets[mean_bits.index(min(mean_bits))]
    looked = widest_within(graph, profile, fewest, request.pipeline)
    preparations = Preparations(graph, request.pipeline)
    found = _search(graph, looked, parts, start, effort, request, progress, preparations)
    plan = found.trials[0].plan if found.trials else start
    return search_bits(graph, profile, plan, parts, budgets, progress, preparations)


def first_plan(request: PlanRequest) -> tuple[Plan, Effort]:
    """The first plan and the effort. Raises UsageError if options exclude each other."""
    if request.plan is None:
        return Plan(method=request.method or PLAIN.method), request.effort or USUAL_EFFORT
    found = request.plan if isinstance(request.plan, Plan) else parse_plan(request.plan)
    request.pipeline.check_plan(found)
    if request.effort not in (None, Effort.PLAIN):
        raise UsageError(
            f"a plan excludes effort `{request.effort}`, which searches for a plan",
            hint="give one of them",
        )
    if request.method not in (None, found.method):
        raise UsageError(
            f"the plan uses thresholds by {found.method}, but the method is {request.method}",
            hint=f"put method={request.method} into the plan",
        )
    return found, Effort.PLAIN


def plan_without_data(request: PlanRequest) -> Plan:
    """The plan if nothing can be measured: more steps with more effort, or the given plan."""
    if request.plan is not None or request.effort == Effort.PLAIN:
        return first_plan(request)[0]
    # Reconstruction already compensates for mean errors; correcting them again would add errors.
    reconstructs = request.effort != Effort.FAST
    usual = replace(DATA_FREE, reconstruct=reconstructs, correct_bias=not reconstructs)
    usual = request.pipeline.reduced(usual)
    return replace(usual, method=request.method) if request.method else usual


def _search(
    graph: Graph,
    profile: Profile,
    parts: Split,
    start: Plan,
    effort: Effort,
    request: PlanRequest,
    progress: Progress,
    preparations: Preparations,
) -> Search:
    if effort == Effort.PLAIN:
        return Search(())
    most, done = steps_of(effort), itertools.count(1)
    progress("searching", 0, most)

    def tried(_: Trial) -> None:
        progress("searching", next(done), most)

    limits = request.seconds, request.memory
    return search(
        graph, profile, parts, effort, start, *limits, tried, request.pipeline, preparations
    )
