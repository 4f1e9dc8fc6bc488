"""Static mode: a network built by a plan, and the search for the plan that serves it best.

Choice is by measurement. The samples given are split: thresholds and corrections come from one
part, plans are compared on a second, and what is reported is measured on a third.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

import numpy as np

from qgraph.errors import ExactnessError, UsageError
from qgraph.exact.statistics import decibel
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.passes import PassManager, PassResult
from qgraph.quant.calibrate import Calibration, calibrate, check_shifts
from qgraph.quant.correct_bias import correct_biases, correct_biases_without_data
from qgraph.quant.data import batch_of, chunk_inputs, thinned
from qgraph.quant.data_free import matched
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import Profile
from qgraph.quant.reconstruct import reconstruct_weights
from qgraph.recipes import FLOAT, insert, prepare
from qgraph.rewrite.trace import Trace
from qgraph.transforms.scale_inputs import ScaleInputs, feature_exponents

EFFORTS = ("plain", "fast", "default", "thorough")
USUAL_EFFORT = "plain"
COMPARED = 64  # samples at most that plans are compared on, and as many for the report
FEWEST = 8  # samples below which there is nothing to split
SAFE = Plan(constant_channels=0.03, equalize="biases", method="mse", correct_bias=True)
# Without data nothing can be compared: what mostly helps. Real numbers have longer tails than
# invented ones, of which nothing should be clipped then.
DATA_FREE = replace(SAFE, absorb=True, method="max")

Data = Mapping[str, Array]
OnNode = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Agreement:
    """How near the quantized outputs are to the float network's, on `samples` samples.

    `sqnr` in dB over all outputs (logits, where the output is their softmax), `top1` the share of
    samples with the same largest output, None where outputs are no classes.
    """

    sqnr: float
    top1: float | None
    samples: int


@dataclass(frozen=True)
class Trial:
    """One plan that was tried: what it gave on the comparison part, and how long it took."""

    plan: Plan
    agreement: Agreement
    seconds: float


@dataclass(frozen=True)
class Split:
    """Samples for calibration, for comparing plans, and for the report; they may be the same.

    `learning` is all but the report's: what the network is built from once the plan stands.
    """

    calibration: Data
    comparison: Data
    report: Data
    learning: Data
    apart: bool


def samples_of(data: Data) -> int:
    return len(next(iter(data.values()), ()))


def undivided(graph: Graph, data: Data) -> Split:
    """Calibration on all samples; compared and reported on the first of them."""
    few = first_samples(graph, data, COMPARED)
    return Split(data, few, few, data, apart=False)


def first_samples(graph: Graph, data: Data, most: int) -> Data:
    """The first samples, `most` of them or one whole batch."""
    count = max(most // (step := batch_of(graph)), 1) * step
    return {name: array[:count] for name, array in data.items()}


def split(graph: Graph, data: Data) -> Split:
    """Three parts with no sample in common, or the same samples three times if there are few."""
    count, step = samples_of(data), batch_of(graph)
    held = min(COMPARED, count // 4) // step * step
    if count < FEWEST or not held:
        return undivided(graph, data)

    def part(start: int, stop: int | None) -> Data:
        return {name: array[start:stop] for name, array in data.items()}

    calibration, learning = part(0, count - 2 * held), part(0, count - held)
    return Split(calibration, part(-2 * held, -held), part(-held, None), learning, apart=True)


def build(
    loaded: Graph,
    profile: Profile,
    plan: Plan,
    data: Data,
    trace: Trace,
    on_pass: Callable[[PassResult], None] = lambda result: None,
    on_node: OnNode = lambda stage, done, total: None,
    memory: int | None = None,
    invented: bool = False,
) -> tuple[Graph, Graph]:
    """The float graph that `plan` makes of `loaded`, and its quantized, calibrated twin.

    Thresholds are from all of `data`, corrections from `thinned` data. memory: see `calibrate`.
    `invented`: the samples are noise (`qgraph.quant.data_free`), brought to the statistics of
    batch norms on the way; biases are then corrected from these.
    """
    graph = loaded.copy()
    PassManager(prepare(plan)).run(graph, trace, on_pass)
    if plan.scale_inputs:
        PassManager((ScaleInputs(feature_exponents(graph, data)),)).run(graph, trace, on_pass)
    floating = graph.copy()
    PassManager(insert(profile)).run(graph, trace, on_pass)
    options = Calibration(plan.method, profile.shift)
    few = thinned(graph, data)
    with matched(graph, floating, data) if invented else nullcontext():
        calibrate(graph, data, options, lambda i, n: on_node("calibrating", i, n), memory)
        if plan.reconstruct:
            reconstruct_weights(
                graph, floating, few, on_node=lambda i, n: on_node("reconstructing", i, n)
            )
    if plan.reconstruct or invented:
        check_shifts(graph, profile.shift)  # it may have chosen finer scales
    if plan.correct_bias and invented:
        correct_biases_without_data(graph, floating)
    elif plan.correct_bias:
        correct_biases(graph, floating, few, lambda i, n: on_node("correcting", i, n))
    return floating, graph


# -- measuring ------------------------------------------------------------------------------


def decisions(graph: Graph) -> list[str]:
    """The values that outputs are decided by: an output itself, or the logits of a softmax."""
    found = []
    for value in graph.outputs.values():
        node = graph.producer(value)
        while node.op in ("softmax", "log_softmax", "reshape", "squeeze", "identity"):
            value, node = node.inputs[0], graph.producer(node.inputs[0])
        found.append(value)
    return found


def agreement(wanted: Graph, found: Graph, data: Data) -> Agreement:
    """Compare two graphs of the same inputs and outputs over the samples of `data`."""
    chunks = chunk_inputs(wanted, data)
    count = len(next(iter(chunks.values())))
    ends = decisions(wanted), decisions(found)

    def compare(i: int) -> Tally:
        feeds = {name: arrays[i] for name, arrays in chunks.items()}
        a, b = (evaluate(g, feeds, e) for g, e in zip((wanted, found), ends, strict=True))
        return tally([*a.values()], [*b.values()])

    with over_chunks(count) as each:
        return judge(wanted, ends[0], [*each(compare, range(count))], samples_of(data))


Tally = tuple[float, float, float, int]  # signal, noise, samples of the same class, all samples


def tally(wanted: Sequence[Array], found: Sequence[Array]) -> Tally:
    """What one chunk of samples adds to an agreement."""
    exact = [a.astype(np.float64) for a in wanted]
    signal = sum(float((a**2).sum()) for a in exact)
    noise = sum(float(((a - b) ** 2).sum()) for a, b in zip(exact, found, strict=True))
    a, b = exact[0], found[0]
    return signal, noise, float((a.argmax(-1) == b.argmax(-1)).sum()), a[..., 0].size


def judge(graph: Graph, ends: Sequence[str], tallies: Sequence[Tally], samples: int) -> Agreement:
    """The agreement that tallies of the values `ends` add up to."""
    signal, noise, same, total = np.sum(tallies, axis=0)
    shape = graph.types[ends[0]].shape or ()
    classes = len(ends) == 1 and len(shape) >= 2 and shape[-1] not in (1, None)
    return Agreement(decibel(signal, noise), float(same / total) if classes else None, samples)


# -- searching ------------------------------------------------------------------------------


def search(
    loaded: Graph,
    profile: Profile,
    parts: Split,
    effort: str,
    start: Plan = PLAIN,
    budget: float | None = None,
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Plans that were tried, the best one first.

    `effort`: `plain` takes `start` as it is, `fast` compares it with one plan that mostly helps,
    `default` tries each step on top of what has helped so far, `thorough` goes through the steps
    twice. `budget` in seconds: no trial begins after it. Ctrl-C ends the search; the best so far
    is kept.
    """
    if effort not in EFFORTS:
        raise UsageError(f"unknown effort `{effort}`", hint=f"one of {', '.join(EFFORTS)}")
    original = loaded.copy()
    PassManager(FLOAT).run(original)
    few = thinned(loaded, parts.calibration)
    began = time.perf_counter()
    trials: list[Trial] = []

    def attempt(plan: Plan) -> None:
        started = time.perf_counter()
        _, graph = build(loaded, profile, plan, few, Trace())
        found = agreement(original, graph, parts.comparison)
        trial = Trial(plan, found, time.perf_counter() - started)
        trials.append(trial)
        trials.sort(key=lambda trial: -trial.agreement.sqnr)
        on_trial(trial)

    attempt(start)
    try:
        for alternatives in _steps(effort):
            for plan in alternatives(trials[0].plan):
                if any(trial.plan == plan for trial in trials):
                    continue
                if budget is not None and time.perf_counter() - began > budget:
                    return trials
                with suppress(ExactnessError):  # a plan that the target cannot carry
                    attempt(plan)
    except KeyboardInterrupt:
        return trials
    return trials


def steps_of(effort: str) -> int:
    """How many plans `search` tries at most."""
    return 1 + sum(len(step(PLAIN)) for step in _steps(effort))


def _steps(effort: str) -> Iterator[Callable[[Plan], Sequence[Plan]]]:
    """Each step makes alternatives to the best plan so far."""

    def equalize(best: Plan) -> Sequence[Plan]:
        return [replace(best, equalize=kind) for kind in ("weights", "biases", "")]

    def constants(best: Plan) -> Sequence[Plan]:
        return [replace(best, constant_channels=ratio) for ratio in (0.03, 0.1, 0.3)]

    def corrections(best: Plan) -> Sequence[Plan]:
        kinds = ((False, True), (True, False), (True, True))
        return [replace(best, reconstruct=r, correct_bias=c) for r, c in kinds]

    def methods(best: Plan) -> Sequence[Plan]:
        return [replace(best, method=method) for method in ("kl_j", "mse", "percentile", "max")]

    if effort == "fast":
        yield lambda best: [SAFE]
    if effort in ("default", "thorough"):
        yield from (equalize, constants, corrections, methods)
    if effort == "thorough":
        # Once more: what did not help before weights were reconstructed may help now.
        yield from (equalize, constants, corrections)
