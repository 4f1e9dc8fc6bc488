"""Build a quantized network by a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.passes import PassResult
from qgraph.pipelines import USUAL, Pipeline
from qgraph.progress import Progress, silent
from qgraph.quant.assign_exponents import assign_exponents
from qgraph.quant.calibrate import Calibration, calibrate
from qgraph.quant.correct_bias import correct_biases, correct_biases_without_data
from qgraph.quant.exponents import Exponents
from qgraph.quant.float_statistics import FloatStatistics
from qgraph.quant.plan import Plan
from qgraph.quant.profile import Profile
from qgraph.quant.reconstruction.reconstruct import FINER, reconstruct_weights
from qgraph.quant.samples.data import thinned
from qgraph.quant.shifts import check_shifts
from qgraph.quant.without_data.matching import matched
from qgraph.rewrite.trace import Trace
from qgraph.static.calibrator import calibrating_by, current
from qgraph.static.preparations import Preparations, Prepared


def build(
    loaded: Graph,
    profile: Profile,
    plan: Plan,
    data: Mapping[str, Array],
    trace: Trace,
    on_pass: Callable[[PassResult], None] = lambda result: None,
    progress: Progress = silent,
    memory: int | None = None,
    generated: bool = False,
    pipeline: Pipeline = USUAL,
    exponents: Exponents | None = None,
    preparations: Preparations | None = None,
) -> Prepared:
    """The float graph that `plan` makes from `loaded`, and its quantized, calibrated form.

    Thresholds come from all of `data`, corrections from `thinned` data. memory: see `calibrate`.
    generated: the samples are noise (`qgraph.quant.without_data.generated`); inside the network,
    they are normalized to the statistics of batch norms, and biases are corrected from these.
    pipeline: the passes that run. exponents: used instead of a calibration; scales do not change
    then.
    preparations: of `loaded` by `pipeline`, if other plans were prepared before.
    """
    known = preparations or Preparations(loaded, pipeline)
    floating, graph = known.prepared(profile, plan, data, trace, on_pass, exponents, generated)
    subset, statistics = thinned(graph, data), None
    with _by_norms(graph, floating, data) if generated else nullcontext():
        if exponents is None:
            if corrects(plan):
                statistics = statistics_of(graph, data, progress)
            calibrate_by(graph, profile, plan, data, progress, memory, statistics)
        else:
            assign_exponents(graph, exponents, profile.shift)
        if plan.correct_bias and not generated and (statistics is None or subset is not data):
            statistics = statistics_of(graph, subset)  # before weights are reconstructed
        if plan.reconstruct:
            finer = FINER if exponents is None else 0
            reconstruct(graph, floating, subset, finer, progress, biases=not generated)
    if plan.reconstruct or generated:
        check_shifts(graph, profile.shift)  # reconstruction may have chosen finer scales
    if plan.correct_bias and generated:
        correct_biases_without_data(graph, floating)
    elif plan.correct_bias:
        correct_biases(
            graph, floating, subset, lambda i, n: progress("correcting", i, n), statistics
        )
    return floating, graph


@contextmanager
def _by_norms(graph: Graph, floating: Graph, data: Mapping[str, Array]) -> Iterator[None]:
    """Bring noise to the statistics of batch norms, which only this process does."""
    with calibrating_by(None), matched(graph, floating, data):
        yield


def statistics_of(
    graph: Graph, data: Mapping[str, Array], progress: Progress = silent
) -> FloatStatistics:
    """Statistics of the float network for calibration and corrections by any method."""
    elsewhere = current()
    if elsewhere is not None:
        return elsewhere.statistics(graph, data)
    return FloatStatistics.of(graph, data, lambda i, n: progress("calibrating", i, n))


def calibrate_by(
    graph: Graph,
    profile: Profile,
    plan: Plan,
    data: Mapping[str, Array],
    progress: Progress = silent,
    memory: int | None = None,
    statistics: FloatStatistics | None = None,
) -> None:
    """Give the quantizers of `graph` the exponents that the methods of `plan` choose."""
    options = Calibration(plan.method, profile.shift, plan.weights, of_float=corrects(plan))
    elsewhere = current()
    if elsewhere is not None:
        elsewhere.calibrate(graph, data, options, statistics)
        return

    def on_node(done: int, total: int) -> None:
        if statistics is None:  # otherwise its progress was reported before
            progress("calibrating", done, total)

    calibrate(graph, data, options, on_node, memory, statistics)


def reconstruct(
    graph: Graph,
    floating: Graph,
    data: Mapping[str, Array],
    finer: int = FINER,
    progress: Progress = silent,
    biases: bool = True,
) -> None:
    """Choose the weight codes of `graph`, with up to `finer` finer scales; check shifts after it.

    biases: whether biases are corrected by mean errors.
    """
    reconstruct_weights(
        graph,
        floating,
        data,
        finer=finer,
        on_node=lambda i, n: progress("reconstructing", i, n),
        biases=biases,
    )


def corrects(plan: Plan) -> bool:
    """Whether biases are corrected after calibration, by reconstruction or bias correction."""
    return plan.reconstruct or plan.correct_bias
