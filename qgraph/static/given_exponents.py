"""Runs with given exponents instead of a calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qgraph.choices import Effort
from qgraph.errors import CalibrationError, UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_if_any
from qgraph.ir.types import Role
from qgraph.passes import PassManager
from qgraph.pipelines import Pipeline
from qgraph.progress import Progress
from qgraph.quant.assign_exponents import assign_exponents
from qgraph.quant.exponents import Exponents
from qgraph.quant.plan import Plan
from qgraph.quant.profile import Profile
from qgraph.quant.samples.data import Data
from qgraph.quant.thresholds import Range
from qgraph.static.channel_factors import with_factors
from qgraph.static.samples import Samples, samples_for
from qgraph.transforms.scale_inputs import ScaleInputs

USUAL_RANGE = (-1.0, 1.0)  # for inputs without a quantizer


def check_given(effort: str | None, budget: bool) -> Effort:
    """The effort, `plain`. Raises UsageError for options that would choose other exponents."""
    if effort not in (None, Effort.PLAIN):
        raise UsageError(
            f"given exponents exclude effort `{effort}`, which searches for others",
            hint="leave the effort out",
        )
    if budget:
        raise UsageError(
            "given exponents exclude a weight budget, which chooses other bits",
            hint="give the profile that the exponents were written with: --profile profile.yaml",
        )
    return Effort.PLAIN


def with_exponents(
    loaded: Graph, profile: Profile, plan: Plan, pipeline: Pipeline, exponents: Exponents
) -> Graph:
    """The quantized graph with these exponents, without data.

    Raises the errors of `assign_exponents`.
    """
    graph = loaded.copy()
    PassManager(with_factors(pipeline.prepare(plan), exponents.factors)).run(graph)
    if plan.scale_inputs:
        PassManager((ScaleInputs(exponents.features),)).run(graph)
    PassManager(pipeline.insert(profile)).run(graph)
    assign_exponents(graph, exponents, profile.shift)
    return graph


def samples_with(
    exponents: Exponents,
    profile: Profile,
    plan: Plan,
    graph: Graph,
    calibration: Data | None,
    input_ranges: Mapping[str, Range],
    limit: int | None,
    measures: Mapping[str, bool],
    progress: Progress,
    pipeline: Pipeline,
) -> Samples:
    """Samples for a run with exponents, which are checked first; otherwise as in `samples_for`.

    Without data and batch-norm statistics, samples are in the range of the codes of inputs.
    """
    fitted = with_exponents(graph, profile, plan, pipeline, exponents)
    wanted = (limit, measures, progress, pipeline)
    try:
        found = samples_for(graph, calibration, input_ranges, *wanted)
    except CalibrationError:
        if calibration is not None:
            raise
        found = samples_for(graph, None, {**recorded_input_ranges(fitted), **input_ranges}, *wanted)
    return replace(found, warnings=without_data(plan)) if found.generated else found


def recorded_input_ranges(graph: Graph) -> dict[str, Range]:
    """The range of the codes of each input, for generated samples."""
    found = dict.fromkeys(graph.inputs, USUAL_RANGE)
    for name in graph.inputs:
        for user in graph.users(name):
            spec = spec_if_any(user)
            if spec is not None and spec.role == Role.INPUT and isinstance(spec.exponent, int):
                unit = 2.0**-spec.exponent
                found[name] = (spec.lo * unit, spec.hi * unit)
    return found


def without_data(plan: Plan) -> Sequence[str]:
    """Warnings for a run with exponents and without samples."""
    found = ["no data: exponents as given; the distance from the float network was not measured"]
    learned = {"reconstruct": plan.reconstruct, "correct-bias": plan.correct_bias}
    if steps := [name for name, on in learned.items() if on]:
        found.append(
            f"{' and '.join(steps)} used generated samples: to get the network that the exponents "
            "come from, give the same calibration data"
        )
    return found
