"""The flow: load -> float recipe -> quantizers -> calibration -> what a target runs.

import qgraph
result = qgraph.quantize("model.pb", "calib.npz")
result.save("out")
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from qgraph.analysis import SAMPLES as SENSITIVITY_SAMPLES
from qgraph.analysis import analysis
from qgraph.errors import UsageError
from qgraph.exact.bounds import Bound, bounds, check_accumulators
from qgraph.exact.compare import Measured, measure, measure_constants
from qgraph.exact.reference import Reference
from qgraph.files import sha256_of
from qgraph.frontends import load
from qgraph.frontends.checkpoint import files_of
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array, Shape
from qgraph.mixed import Mixed, overridden, search_bits, widest_within
from qgraph.passes import PassManager
from qgraph.quant.bits import Budget, budget_of
from qgraph.quant.calibrate import Calibration
from qgraph.quant.data import Data, load_data
from qgraph.quant.data_free import Range
from qgraph.quant.plan import PLAIN, Plan, parse_plan
from qgraph.quant.profile import Profile, load_profile
from qgraph.recipes import static
from qgraph.rewrite.trace import Trace
from qgraph.samples import samples_for
from qgraph.static import (
    DATA_FREE,
    USUAL_EFFORT,
    Split,
    Trial,
    agreement,
    build,
    first_samples,
    samples_of,
    search,
    split,
    steps_of,
    undivided,
)
from qgraph.transforms.wrap_accumulators import WrapAccumulators

# Enough to see a layer's noise, few enough not to be noticed beside calibration.
SQNR_SAMPLES = 16

Progress = Callable[[str, int, int], None]


def _silent(stage: str, done: int, total: int) -> None:
    """Progress for those who do not watch."""


@dataclass(frozen=True)
class Quantized:
    """A network in fixed point, with all that is known of it.

    `graph` is quantized and calibrated, `floating` the float graph it stands for (passes applied),
    `measured` how far one is from the other, `sample` the calibration inputs (one batch) whose
    codes are saved.
    """

    graph: Graph
    floating: Graph
    profile: Profile
    calibration: Calibration
    trace: Trace
    bounds: Mapping[str, Bound]
    measured: Measured
    sample: Mapping[str, Array]
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def sqnr(self) -> Mapping[str, float]:
        """In dB, by quantizer."""
        return self.measured.sqnr

    def reference(self) -> Reference:
        """The integer reference of this network."""
        return Reference(self.graph)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the output directory, whole or not at all. Raises OutputError."""
        from qgraph.artifacts import save

        return save(self, Path(path), force=force)


def quantize(
    model: str | Path | Graph,
    calibration: Data | None = None,
    *,
    profile: str | Path | Profile = "graffitist-int8",
    mode: str = "static",
    effort: str | None = None,
    plan: str | Plan | None = None,
    method: str | None = None,
    budget: float | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    limit: int | None = None,
    input_ranges: Mapping[str, Range] | None = None,
    sensitivity: bool = False,
    mean_bits: float | None = None,
    weight_bytes: int | None = None,
    memory: int | None = None,
    progress: Progress = _silent,
) -> Quantized:
    """Quantize a trained network without retraining.

    model: a file or directory that `load` reads, or a graph (left as it is). calibration: typical
    inputs, unlabelled; a few dozen do (`qgraph.quant.data.load_data` says in which forms). Without,
    thresholds come from batch-norm statistics, and nothing can be measured; `input_ranges` then
    says within which two numbers inputs lie (the name `` stands for the only input).
    effort: `plain` quantizes as it is; `fast`, `default` and `thorough` try what helps on part of
    the samples and keep what does (`qgraph.static.search`), within `budget` seconds. method: how
    activation thresholds are found at first, `kl_j`, `max`, `percentile`, `mse` or `output`. plan:
    exactly these steps, in place of an effort and a method, as `qgraph.quant.plan.parse_plan` reads
    them. sensitivity: work out which layers hurt, and why (`qgraph.analysis`); takes many runs of
    the network. mean_bits or weight_bytes: what weights may take; their bits are chosen layer by
    layer (`qgraph.mixed`). memory: bytes of live values beyond which calibration uses temporary
    files.
    """
    if mode != "static":
        raise UsageError(f"mode `{mode}` is not there", hint="static is")
    target = profile if isinstance(profile, Profile) else load_profile(profile)
    asked = effort
    start, effort = first_plan(plan, effort, method)
    progress("loading", 0, 1)
    graph = model.copy() if isinstance(model, Graph) else load(
        model, inputs=inputs, outputs=outputs, input_shapes=input_shapes
    )  # fmt: skip
    room = budget_of(mean_bits, weight_bytes)
    measures = {"sensitivity": sensitivity, "a budget of bits": room is not None}
    known = samples_for(graph, calibration, input_ranges or {}, limit, measures, progress)
    data, invented = known.data, known.invented
    if invented:
        start, effort = plan_without_data(plan, asked, method), "plain"
    apart = effort != "plain" or room is not None
    parts = split(graph, data) if apart else undivided(graph, data)
    looked = target if room is None else widest_within(graph, target, room)
    trials = _searched(graph, looked, parts, effort, start, budget, progress)
    kept = trials[0].plan if trials else start
    mixed = None
    if room is not None:
        mixed = search_bits(graph, target, kept, parts, [room], progress)
        target = overridden(target, mixed.units, mixed.chosen[room].bits)
    trace, done = Trace(), itertools.count(1)
    steps = len(static(target, kept))

    def passed(_: object) -> None:
        progress("rewriting", next(done), steps)

    floating, graph = build(
        graph, target, kept, parts.learning, trace, passed, progress, memory, invented
    )
    found = bounds(graph)
    if target.accumulator_wraps:
        PassManager((WrapAccumulators(target.accumulator_bits),)).run(graph, trace)
        found = bounds(graph)
    else:
        check_accumulators(graph, found, target.accumulator_bits)
    progress("measuring", 0, 1)
    few = first_samples(graph, data, SQNR_SAMPLES)
    measured = measure_constants(graph) if invented else measure(graph, floating, few)
    facts = {
        **_source(model),
        "calibration_samples": 0 if invented else samples_of(parts.learning),
        "effort": effort,
        **known.facts,
        "plan": asdict(kept),
        "plan_spec": kept.spec(),
        "trials": [asdict(trial) for trial in trials],
        "agreement": None
        if invented
        else {
            **asdict(agreement(known.original, graph, parts.report)),
            "held_out": parts.apart,
        },
    }
    if mixed is not None and room is not None:
        facts["mixed"] = {**mixed.facts(room), "budget": asdict(room)}
    if sensitivity:
        samples = first_samples(graph, parts.comparison, SENSITIVITY_SAMPLES)
        facts["sensitivity"] = analysis(
            graph, floating, measured, samples, lambda i, n: progress("analysing", i, n)
        )
    batches = {name: (graph.types[name].shape or (1,))[0] or 1 for name in data}
    sample = {name: np.array(array[: batches[name]]) for name, array in data.items()}
    return Quantized(
        graph, floating, target, Calibration(kept.method), trace, found, measured, sample, facts
    )


def pareto(
    model: str | Path | Graph,
    calibration: Data | None,
    budgets: Sequence[float],
    *,
    profile: str | Path | Profile = "graffitist-int8",
    effort: str | None = None,
    plan: str | Plan | None = None,
    method: str | None = None,
    budget: float | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    limit: int | None = None,
    progress: Progress = _silent,
) -> Mixed:
    """What weights of so many bits on average can give, for each of `budgets`.

    The other options are those of `quantize`; the plan is found at the smallest budget.
    """
    target = profile if isinstance(profile, Profile) else load_profile(profile)
    start, effort = first_plan(plan, effort, method)
    progress("loading", 0, 1)
    graph = model.copy() if isinstance(model, Graph) else load(
        model, inputs=inputs, outputs=outputs, input_shapes=input_shapes
    )  # fmt: skip
    parts = split(graph, load_data(calibration, graph, limit))
    rooms = [Budget(mean_bits=bits) for bits in budgets]
    looked = widest_within(graph, target, min(rooms, key=lambda room: room.mean_bits or 0.0))
    trials = _searched(graph, looked, parts, effort, start, budget, progress)
    return search_bits(graph, target, trials[0].plan if trials else start, parts, rooms, progress)


def first_plan(plan: str | Plan | None, effort: str | None, method: str | None) -> tuple[Plan, str]:
    """The plan to begin with, and the effort. Raises UsageError where they exclude each other."""
    if plan is None:
        return Plan(method=Calibration(method or PLAIN.method).method), effort or USUAL_EFFORT
    found = plan if isinstance(plan, Plan) else parse_plan(plan)
    if effort not in (None, "plain"):
        raise UsageError(
            f"a plan is built as it is: effort `{effort}` would look for another",
            hint="give one of them",
        )
    if method not in (None, found.method):
        raise UsageError(
            f"the plan takes thresholds by {found.method}, the method says {method}",
            hint=f"put method={method} into the plan",
        )
    return found, "plain"


def plan_without_data(plan: str | Plan | None, effort: str | None, method: str | None) -> Plan:
    """What is done where nothing can be measured: more with more effort, or exactly `plan`."""
    if plan is not None or effort == "plain":
        return first_plan(plan, effort, method)[0]
    # Reconstructed weights make up for mean errors too; to correct these again would add some.
    learnt = effort != "fast"
    usual = replace(DATA_FREE, reconstruct=learnt, correct_bias=not learnt)
    return replace(usual, method=method) if method else usual


def _source(model: str | Path | Graph) -> dict[str, object]:
    if isinstance(model, Graph):
        return {"model": model.name, "model_sha256": None}
    path = Path(model)
    return {"model": path.name, "model_sha256": sha256_of(*files_of(path))}


def _searched(
    graph: Graph,
    profile: Profile,
    parts: Split,
    effort: str,
    start: Plan,
    budget: float | None,
    progress: Progress,
) -> list[Trial]:
    if effort == "plain":
        return []
    most, done = steps_of(effort), itertools.count(1)
    progress("searching", 0, most)

    def tried(_: Trial) -> None:
        progress("searching", next(done), most)

    return search(graph, profile, parts, effort, start, budget, tried)
