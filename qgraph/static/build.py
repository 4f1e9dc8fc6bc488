"""Build a quantized network by a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.passes import PassResult
from qgraph.pipelines import USUAL, Pipeline
from qgraph.progress import Progress, silent
from qgraph.quant.calibrate import Calibration, calibrate
from qgraph.quant.correct_bias import correct_biases, correct_biases_without_data
from qgraph.quant.data import thinned
from qgraph.quant.exponents import Exponents, assign_exponents
from qgraph.quant.float_statistics import FloatStatistics
from qgraph.quant.matching import matched
from qgraph.quant.plan import Plan
from qgraph.quant.profile import Profile
from qgraph.quant.reconstruct import FINER, reconstruct_weights
from qgraph.quant.shifts import check_shifts
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
    invented: bool = False,
    pipeline: Pipeline = USUAL,
    exponents: Exponents | None = None,
    preparations: Preparations | None = None,
) -> Prepared:
    """The float graph that `plan` makes of `loaded`, and its quantized, calibrated twin.

    Thresholds are from all of `data`, corrections from `thinned` data. memory: see `calibrate`.
    `invented`: the samples are noise (`qgraph.quant.data_free`), brought to the statistics of
    batch norms on the way; biases are then corrected from these. `pipeline`: which passes run.
    `exponents`: these, instead of a calibration; scales then stay as they are given.
    `preparations`: of `loaded` by `pipeline`, where other plans were prepared before.
    """
    known = preparations or Preparations(loaded, pipeline)
    floating, graph = known.prepared(profile, plan, data, trace, on_pass, exponents, invented)
    few, statistics = thinned(graph, data), None
    with _by_norms(graph, floating, data) if invented else nullcontext():
        if exponents is None:
            if corrects(plan):
                statistics = statistics_of(graph, data, progress)
            calibrate_by(graph, profile, plan, data, progress, memory, statistics)
        else:
            assign_exponents(graph, exponents, profile.shift)
        if plan.correct_bias and not invented and (statistics is None or few is not data):
            statistics = statistics_of(graph, few)  # of weights that are not reconstructed yet
        if plan.reconstruct:
            finer = FINER if exponents is None else 0
            reconstruct(graph, floating, few, finer, progress, biases=not invented)
    if plan.reconstruct or invented:
        check_shifts(graph, profile.shift)  # it may have chosen finer scales
    if plan.correct_bias and invented:
        correct_biases_without_data(graph, floating)
    elif plan.correct_bias:
        correct_biases(graph, floating, few, lambda i, n: progress("correcting", i, n), statistics)
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
        if statistics is None:  # else it was told of
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
    """Choose the weight codes of `graph`, whose scales may become `finer`: shifts are to check.

    `biases`: these take mean errors.
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
    """True if values are brought back to those of the float network after calibration."""
    return plan.reconstruct or plan.correct_bias
