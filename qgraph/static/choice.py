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
class Wish:
    """The user's request: exactly a `plan`, or an `effort` to find one that starts with a
    `method` and begins no trial after `seconds`; and a budget of `bits`, if any. memory: bytes of
    live values beyond which calibration uses temporary files. pipeline: which passes run.
    apart: keep samples for the report apart, as a search does, where there is none.
    """

    effort: Effort | None = None
    plan: str | Plan | None = None
    method: CalibrationMethod | None = None
    seconds: float | None = None
    bits: Budget | None = None
    memory: int | None = None
    pipeline: Pipeline = USUAL
    apart: bool = False


@dataclass(frozen=True)
class Choice:
    """A plan and a profile, whose bits may have been chosen; and how they were found."""

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
    wish: Wish,
    progress: Progress,
    preparations: Preparations,
) -> Choice:
    """Find what `wish` leaves open. `graph` as it was loaded; nothing is measured on the samples
    that `Choice.parts` keeps for the report. `preparations`: of `graph` by the pipeline of `wish`.
    Raises UsageError.
    """
    start, effort = first_plan(wish)
    if samples.invented:
        start, effort = plan_without_data(wish), Effort.PLAIN
    apart = effort != Effort.PLAIN or wish.bits is not None or wish.apart
    parts = (split if apart else undivided)(graph, samples.data)
    looked = (
        profile if wish.bits is None else widest_within(graph, profile, wish.bits, wish.pipeline)
    )
    found = _search(graph, looked, parts, start, effort, wish, progress, preparations)
    plan = found.trials[0].plan if found.trials else start
    if samples.invented:
        effort = wish.effort or (Effort.PLAIN if wish.plan else USUAL_EFFORT)
    choice = Choice(plan, profile, effort, parts, found)
    if wish.bits is None:
        return choice
    mixed = search_bits(graph, profile, plan, parts, [wish.bits], progress, preparations)
    chosen = overridden(profile, mixed.units, mixed.chosen[wish.bits].bits)
    return replace(choice, profile=chosen, mixed=mixed, bits=wish.bits)


def pareto(
    graph: Graph,
    profile: Profile,
    samples: Samples,
    wish: Wish,
    mean_bits: Sequence[float],
    progress: Progress,
) -> Mixed:
    """Results by mean bits of weights; the plan is found at the fewest."""
    start, effort = first_plan(wish)
    parts = split(graph, samples.data)
    rooms = [Budget(mean_bits=bits) for bits in mean_bits]
    fewest = rooms[mean_bits.index(min(mean_bits))]
    looked = widest_within(graph, profile, fewest, wish.pipeline)
    preparations = Preparations(graph, wish.pipeline)
    found = _search(graph, looked, parts, start, effort, wish, progress, preparations)
    plan = found.trials[0].plan if found.trials else start
    return search_bits(graph, profile, plan, parts, rooms, progress, preparations)


def first_plan(wish: Wish) -> tuple[Plan, Effort]:
    """The first plan and the effort. Raises UsageError if options exclude each other."""
    if wish.plan is None:
        return Plan(method=wish.method or PLAIN.method), wish.effort or USUAL_EFFORT
    found = wish.plan if isinstance(wish.plan, Plan) else parse_plan(wish.plan)
    wish.pipeline.check_plan(found)
    if wish.effort not in (None, Effort.PLAIN):
        raise UsageError(
            f"a plan excludes effort `{wish.effort}`, which searches for a plan",
            hint="give one of them",
        )
    if wish.method not in (None, found.method):
        raise UsageError(
            f"the plan takes thresholds by {found.method}, the method is {wish.method}",
            hint=f"put method={wish.method} into the plan",
        )
    return found, Effort.PLAIN


def plan_without_data(wish: Wish) -> Plan:
    """The plan where nothing can be measured: more steps with more effort, or exactly a plan."""
    if wish.plan is not None or wish.effort == Effort.PLAIN:
        return first_plan(wish)[0]
    # Reconstructed weights make up for mean errors too; to correct these again would add some.
    reconstructs = wish.effort != Effort.FAST
    usual = replace(DATA_FREE, reconstruct=reconstructs, correct_bias=not reconstructs)
    usual = wish.pipeline.reduced(usual)
    return replace(usual, method=wish.method) if wish.method else usual


def _search(
    graph: Graph,
    profile: Profile,
    parts: Split,
    start: Plan,
    effort: Effort,
    wish: Wish,
    progress: Progress,
    preparations: Preparations,
) -> Search:
    if effort == Effort.PLAIN:
        return Search(())
    most, done = steps_of(effort), itertools.count(1)
    progress("searching", 0, most)

    def tried(_: Trial) -> None:
        progress("searching", next(done), most)

    limits = wish.seconds, wish.memory
    return search(graph, profile, parts, effort, start, *limits, tried, wish.pipeline, preparations)
