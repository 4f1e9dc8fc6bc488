"""The flow: load -> float recipe -> quantizers -> calibration -> what a target runs.

import qgraph
result = qgraph.quantize("model.pb", "calib.npz")
result.save("out")
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from qgraph.choices import (
    DEFAULT_PROFILE,
    CalibrationMethod,
    Effort,
    Equalization,
    Mode,
    WeightMethod,
    chosen,
    optional,
)
from qgraph.files import sha256_of
from qgraph.foreign import KerasModel
from qgraph.frontends import load
from qgraph.frontends.tf.checkpoint import files_of
from qgraph.ir.graph import Graph
from qgraph.ir.states import mark_states, states_of
from qgraph.ir.types import Array, Shape
from qgraph.names import path_text
from qgraph.pass_text import describe_passes
from qgraph.passes import Pass
from qgraph.pipelines import pipeline_of
from qgraph.progress import Progress, silent
from qgraph.quant.bits import budget_of
from qgraph.quant.exponents import Exponents, load_exponents
from qgraph.quant.kept_scales import has_kept_scales
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import Profile, load_profile
from qgraph.quant.samples.data import Data, check_source, converted, load_data
from qgraph.quant.samples.sequences import sequence_inputs, steps_of
from qgraph.quant.thresholds import Range
from qgraph.quantized import Quantized, finished
from qgraph.quiet import quiet_tensorflow
from qgraph.rewrite.trace import Trace
from qgraph.static.agreement import agreement
from qgraph.static.analysis import SAMPLES as SENSITIVITY_SAMPLES
from qgraph.static.analysis import analysis
from qgraph.static.build import build
from qgraph.static.cautions import TRAINING_WITHOUT_DATA
from qgraph.static.choice import Choice, PlanRequest, choose, first_plan
from qgraph.static.choice import pareto as pareto_of
from qgraph.static.facts import AgreementFacts, Facts
from qgraph.static.given_exponents import check_given, recorded_input_ranges, samples_with
from qgraph.static.kept_scales import WITHOUT_DATA, may_keep_scales
from qgraph.static.mixed import Mixed
from qgraph.static.preparations import Preparations
from qgraph.static.sample_parts import Split, first_samples, samples_of
from qgraph.static.samples import Samples, samples_for
from qgraph.train.weights_near_float import with_weights_near_float

# Enough to measure the noise of a layer, and fast compared with calibration. If the report has its
# own samples, these are used, because reconstructed weights fit the samples that they were made on.
SQNR_SAMPLES = 16
# The start of training: equalized channels share one scale well, and thresholds that clip the
# largest weights are nearer to the trained ones (TQT, table 2).
TO_TRAIN = Plan(equalize=Equalization.BIASES, weights=WeightMethod.DEVIATIONS)


@quiet_tensorflow()
def quantize(
    model: str | Path | Graph | KerasModel,
    calibration: Data | None = None,
    *,
    profile: str | Path | Profile = DEFAULT_PROFILE,
    mode: str = Mode.STATIC,
    effort: str | None = None,
    plan: str | Plan | None = None,
    method: str | None = None,
    budget: float | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    signature: str | None = None,
    limit: int | None = None,
    input_ranges: Mapping[str, Range] | None = None,
    sensitivity: bool = False,
    mean_bits: float | None = None,
    weight_bytes: int | None = None,
    memory: int | None = None,
    passes: str | Sequence[Pass] | None = None,
    without: str | Sequence[str] = (),
    exponents: str | Path | Mapping[str, object] | Exponents | None = None,
    trust: bool = False,
    states: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> Quantized:
    """Quantize a trained network.

    Steps: the model is read, float rewrites are applied, quantizers are inserted, and their scales
    are calibrated.

    Args:
        model: A file or directory that `load` reads, a Keras model in memory, or a graph, which
            does not change.
        calibration: Typical inputs without labels; a few dozen are enough. A `.npz`, a `.npy`,
            arrays by input name, or `module:function`. Without calibration data, thresholds come
            from batch-norm statistics, and accuracy cannot be measured.
        profile: The target: a name (`qgraph profiles` lists them), a YAML file, or a `Profile`.
        mode: `static` is without training. `retrain` calibrates by the plan
            `equalize=biases,weights=3sd`, unless an effort or plan is given: the result is to be
            trained further (`qgraph.retrain`), and until then equals the static one of the same
            effort or plan, bit for bit.
        effort: `plain` quantizes without a search. `fast`, `default` and `thorough` try more and
            more plans on part of the samples and keep the best one (`qgraph.static.search`).
        plan: Steps to apply instead of a search, as text that `qgraph.quant.plan.parse_plan` reads.
        method: Method that chooses thresholds of activations: `kl_j`, `max`, `percentile`, `mse` or
            `output`.
        budget: Time limit of the search in seconds: no trial starts after it.
        inputs: Names of nodes that are inputs, needed if they cannot be detected.
        outputs: Names of nodes that are outputs, needed if they cannot be detected.
        input_shapes: Shapes of inputs by name, instead of those of the model.
        signature: One of several signatures of a SavedModel.
        trust: Whether a Keras file may run code, as in `load`.
        limit: Use only the first samples.
        input_ranges: Minimum and maximum of each input by name, for use without calibration data.
            The empty name stands for the only input.
        sensitivity: Whether to find the layers that cost accuracy, and why
            (`qgraph.static.analysis`). This runs the network many times.
        mean_bits: Largest mean number of bits of a weight. Bits are then chosen per layer
            (`qgraph.static.mixed`).
        weight_bytes: Largest size of all weights in bytes, instead of `mean_bits`.
        memory: Bytes of live values above which calibration uses temporary files.
        passes: Passes to run instead of the recipe, as text (`qgraph.pipelines`) or as values.
            Quantizers are inserted after them unless the list does it.
        without: Names of passes to skip.
        exponents: Exponents to use instead of calibration: a file that `Exponents.save` or an
            earlier run wrote, or exponents by tensor name. The plan is that of the file, unless one
            is given, and `calibration` is optional.
        states: The states of a network that computes one step of a sequence: each state input,
            with the output that has its next value. Both have one format and one scale.
            Samples are then sequences, [n, steps, ...] for each input that is not a state; states
            begin with zeros, and `limit` counts sequences.
        progress: Called with the stage, how much is done, and how much there is.

    Returns:
        The quantized network; its `save` writes the output directory.

    Raises:
        LoadError: The model cannot be read.
        UnsupportedError: A part of the network is not supported.
        CalibrationError: The samples are missing or do not fit.
        ProfileError: The profile is not valid.
        UsageError: Options do not fit together.
        ExactnessError: An accumulator of the profile is too narrow.

    Examples:
        >>> result = qgraph.quantize("model.pb", "calib.npz", profile="graffitist-int8")
        >>> result
        Quantized(model, graffitist-int8, 12 layers, ... dB at the outputs)
        >>> print(result.save("out"))
        out
    """
    training = chosen(Mode, mode, "mode") is Mode.RETRAIN
    target = profile if isinstance(profile, Profile) else load_profile(profile)
    pipeline = pipeline_of(passes, without, target)
    given = None if exponents is None else load_exponents(exponents)
    asked = PlanRequest(
        optional(Effort, effort, "effort"),
        plan,
        optional(CalibrationMethod, method, "calibration method"),
        budget,
        budget_of(mean_bits, weight_bytes),
        memory,
        pipeline,
    )
    request = _completed(asked, given, training)
    keeps = may_keep_scales(request) if given is None else given.kept_scales
    keeps = keeps and not training
    graph = _loaded(model, inputs, outputs, input_shapes, signature, trust, progress, keeps)
    mark_states(graph, states or {})
    if states_of(graph):
        calibration, limit = _steps(graph, calibration, limit), None
    ranges = dict(input_ranges or {})
    if has_kept_scales(graph):
        request = replace(request, plan=request.plan or pipeline.reduced(PLAIN), effort=None)
        ranges = ranges or (recorded_input_ranges(graph) if calibration is None else {})
    pipeline.check(target, graph.facts)
    measures = {"sensitivity": sensitivity, "a budget of bits": request.bits is not None}
    wanted = (calibration, ranges, limit, measures, progress, pipeline)
    if given is None:
        samples = samples_for(graph, *wanted)
        if samples.generated and has_kept_scales(graph):
            samples = replace(samples, warnings=[WITHOUT_DATA])
    else:
        samples = samples_with(given, target, first_plan(request)[0], graph, *wanted)
    preparations = Preparations(graph, pipeline)
    choice = choose(graph, target, samples, request, progress, preparations)
    trace = Trace()
    floating, graph = _built(graph, choice, samples, trace, memory, progress, preparations, given)
    if training:
        graph = with_weights_near_float(graph, floating)
    unguided = [TRAINING_WITHOUT_DATA] if training and samples.generated else []
    facts = Facts(
        *_source(model),
        0 if samples.generated else samples_of(choice.parts.learning),
        samples.facts,
        choice.facts(),
        None if given is None else _source_of(exponents),
        describe_passes(pipeline.static(choice.profile, choice.plan)),
        [*unguided, *samples.warnings, *choice.warnings()],
        [*graph.notes, *pipeline.notes()],
        _agreement(graph, samples, choice.parts),
    )
    progress("measuring", 0, 1)
    measured = {} if samples.generated else _first(graph, choice.parts.report, SQNR_SAMPLES)
    sample = _first_batch(graph, samples.data)
    made = finished(
        graph, floating, choice.profile, choice.plan.method, trace, sample, measured, facts
    )
    made = replace(made, original=samples.original)
    if not sensitivity:
        return made
    looked_at = _first(graph, choice.parts.comparison, SENSITIVITY_SAMPLES)
    found = analysis(
        graph, floating, made.measured, looked_at, lambda i, n: progress("analysing", i, n)
    )
    return replace(made, facts=replace(made.facts, sensitivity=found))


def _completed(request: PlanRequest, given: Exponents | None, training: bool) -> PlanRequest:
    """The request with the plan of given exponents, or that of training, where the user named none.

    Raises UsageError for options that exclude each other, before the model is read.
    """
    if given is not None:
        request = replace(
            request,
            effort=check_given(request.effort, request.bits is not None),
            plan=request.plan or given.plan or PLAIN,
            held_out=request.plan is None and given.held_out,
        )
    elif training and request.effort is None and request.plan is None:
        start = replace(TO_TRAIN, method=request.method or TO_TRAIN.method)
        request = replace(request, plan=request.pipeline.reduced(start))
    first_plan(request)
    return request


def pareto(
    model: str | Path | Graph | KerasModel,
    calibration: Data | None,
    mean_bits: Sequence[float],
    *,
    profile: str | Path | Profile = DEFAULT_PROFILE,
    effort: str | None = None,
    plan: str | Plan | None = None,
    method: str | None = None,
    budget: float | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    signature: str | None = None,
    limit: int | None = None,
    trust: bool = False,
    progress: Progress = silent,
) -> Mixed:
    """Measure networks whose weights have each of `mean_bits` bits on average.

    The other options are those of `quantize`; the plan is found at the fewest bits.
    """
    target = profile if isinstance(profile, Profile) else load_profile(profile)
    thresholds = optional(CalibrationMethod, method, "calibration method")
    request = PlanRequest(optional(Effort, effort, "effort"), plan, thresholds, budget)
    graph = _loaded(model, inputs, outputs, input_shapes, signature, trust, progress)
    samples = samples_for(graph, calibration, {}, limit, {"mixed precision": True}, progress)
    return pareto_of(graph, target, samples, request, mean_bits, progress)


def _loaded(
    model: str | Path | Graph | KerasModel,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    input_shapes: Mapping[str, Shape] | None,
    signature: str | None,
    trust: bool,
    progress: Progress,
    keep_scales: bool = False,
) -> Graph:
    progress("loading", 0, 1)
    return load(
        model,
        inputs=inputs,
        outputs=outputs,
        input_shapes=input_shapes,
        signature=signature,
        trust=trust,
        keep_scales=keep_scales,
    )


def _steps(graph: Graph, sequences: Data | None, limit: int | None) -> dict[str, Array]:
    """The steps of sequences as samples. Raises CalibrationError without sequences."""
    check_source(sequences, "sequences")
    return steps_of(graph, load_data(sequences, sequence_inputs(graph), limit, what="sequences"))


def _built(
    graph: Graph,
    choice: Choice,
    samples: Samples,
    trace: Trace,
    memory: int | None,
    progress: Progress,
    preparations: Preparations,
    exponents: Exponents | None,
) -> tuple[Graph, Graph]:
    """The float graph and its quantized form, as chosen."""
    pipeline = preparations.pipeline
    done, steps = itertools.count(1), len(pipeline.static(choice.profile, choice.plan))
    return build(
        graph,
        choice.profile,
        choice.plan,
        choice.parts.learning,
        trace,
        lambda _: progress("rewriting", next(done), steps),
        progress,
        memory,
        samples.generated,
        pipeline,
        exponents,
        preparations,
    )


def _agreement(graph: Graph, samples: Samples, parts: Split) -> AgreementFacts | None:
    if samples.generated:
        return None
    return AgreementFacts.of(agreement(samples.original, graph, parts.report), parts.held_out)


def _first_batch(graph: Graph, data: Mapping[str, Array]) -> dict[str, Array]:
    """One batch of each input, in memory, because `data` may be mapped from a file."""
    batches = {name: (graph.types[name].shape or (1,))[0] or 1 for name in data}
    return converted(graph, {n: np.array(array[: batches[n]]) for n, array in data.items()})


def _first(graph: Graph, data: Mapping[str, Array], most: int) -> dict[str, Array]:
    return converted(graph, first_samples(graph, data, most))


def _source_of(exponents: object) -> str:
    """Source of exponents: the name of a file, or `memory`."""
    return path_text(Path(exponents).name) if isinstance(exponents, str | Path) else "memory"


def _source(model: str | Path | Graph | KerasModel) -> tuple[str, str | None]:
    """The name of the model, and the hash of its files."""
    if not isinstance(model, str | Path):  # in memory
        return str(model.name), None
    path = Path(model)
    return path_text(path.name), sha256_of(*files_of(path))
