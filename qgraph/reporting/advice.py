"""A verdict on the numbers, and the next steps."""

from __future__ import annotations

import math
import shlex

from qgraph.choices import Effort, LossKind
from qgraph.quant.plan import parse_plan
from qgraph.reporting.facts import LayerFacts, NextStep, ReportFacts
from qgraph.static.agreement import LEVELS, level_of
from qgraph.static.causes import VANISHED, rounds_to_zero
from qgraph.static.cautions import CLIPPED
from qgraph.train.record import TrainingRecord
from qgraph.words import counted, noise_share, percent

NOTICEABLE = 2
COLLAPSED = "Far from float"
WEAK_DB = 20.0
LOST_DB = 3.0
LOST_BITS = 1
FEW_SAMPLES = 32
TELLING_SAMPLES = 8  # fewer samples, which calibration also used, say little about others
NAMED = 3
SCALED_INPUTS = (
    "Scaling of input features is one shift per feature at the inputs. A `--plan` "
    "without `scale-inputs` does not scale them."
)
MORE_EFFORT = {
    Effort.PLAIN: Effort.DEFAULT,
    Effort.FAST: Effort.DEFAULT,
    Effort.DEFAULT: Effort.THOROUGH,
}


def _noise(facts: ReportFacts) -> tuple[str, float] | None:
    """Name and dB of the last noise measurement: all outputs, the worst one, or the last layer."""
    near = facts.summary.agreement
    if near is not None and near.sqnr is not None:
        return "outputs", near.sqnr
    known = {n: db for n, db in facts.summary.outputs_sqnr_db.items() if db is not None}
    if known:
        name = min(known, key=lambda n: known[n])
        return f"output `{name}`", known[name]
    measured = [
        (layer.entry.name, layer.entry.sqnr_db)
        for layer in facts.layers
        if layer.entry.sqnr_db is not None
    ]
    return (f"last layer `{measured[-1][0]}`", measured[-1][1]) if measured else None


def level(facts: ReportFacts) -> int | None:
    """Index of the outputs in `LEVELS`; its length below all levels; None if not measured."""
    noise, near = _noise(facts), facts.summary.agreement
    share = near.top1 if near else None
    if noise is None and share is None:
        return None
    decibel = noise[1] if noise else float("inf")
    return level_of(decibel, share, near.samples if near else 0)


def verdict(facts: ReportFacts) -> str:
    """One sentence that sums up the measurements."""
    place, noise, summary = level(facts), _noise(facts), facts.summary
    if summary.training:
        measured = facts.evaluation or "a test set was not measured"
        return f"{trained(summary.training)}; {measured}."
    if place is None:
        if facts.evaluation is not None:
            return f"Evaluated {facts.evaluation}."
        return "Unknown: no output was compared with the float network."
    found = summary.agreement
    count = found.samples if found else summary.measured_samples
    apart = found and found.held_out
    kept = "not seen by" if apart else "used for"
    parts = []
    if noise:
        share = percent(noise_share(noise[1]))
        parts.append(f"noise at the {noise[0]} is {share} of the signal ({noise[1]:.1f} dB)")
    if found and found.top1 is not None:
        parts.append(f"the float network's answer is kept on {percent(found.top1)}")
    word = LEVELS[place][2] if place < len(LEVELS) else COLLAPSED
    if not apart and count < TELLING_SAMPLES:
        word = "Too few samples to tell"
    measured = facts.evaluation or "accuracy on labelled data was not measured"
    return (
        f"{word}: on {counted(count, 'sample')} {kept} calibration, {' and '.join(parts)}; "
        f"{measured}."
    )


def trained(training: TrainingRecord) -> str:
    """Result of training by its validation: `Trained: ...`, without a full stop."""
    best = training.best
    if not training.history or best is None:
        return "Trained by a script, which keeps no record here"
    if best.step == 0:
        return "Training did not improve the network: this is the network before training"
    before, steps = training.history[0].accuracy, f"after {counted(best.step, 'step')}"
    if best.accuracy is None or before is None:
        return f"Trained: the network is the one {steps}"
    what = "as in the float network" if training.loss != LossKind.LABELS else "right"
    return (
        f"Trained: {percent(best.accuracy)} of the answers on validation samples are {what} "
        f"{steps}, {percent(before)} before"
    )


# -- what to do next ------------------------------------------------------------------------

SAMPLES, OUT = "samples.npz", "out"  # placeholders in commands


def _quantize(facts: ReportFacts, *options: str, data: bool = True) -> str:
    """The command that quantizes the model again with other options."""
    words = ["qgraph", "quantize", facts.summary.model, *(["-c", SAMPLES] if data else [])]
    return shlex.join([*words, *options, "-o", OUT])


def next_steps(facts: ReportFacts) -> list[NextStep]:
    """Advice, the most urgent first."""
    if facts.summary.training:
        return [*_accuracy(facts), *_float_ops(facts)]
    return [
        *_without_data(facts),
        *_domain(facts),
        *_effort(facts),
        *_retrain(facts),
        *_weak_layers(facts),
        *_costly_groups(facts),
        *_clipping(facts),
        *_accuracy(facts),
        *_float_ops(facts),
        *_samples(facts),
    ]


def _without_data(facts: ReportFacts) -> list[NextStep]:
    if not facts.summary.data_free:
        return []
    return [
        NextStep(
            "Calibrate on data.",
            "Thresholds come from batch-norm statistics: a few dozen typical inputs, without "
            "labels, give better thresholds and show how close the outputs are.",
            commands=[_quantize(facts)],
        )
    ]


def _domain(facts: ReportFacts) -> list[NextStep]:
    domain = facts.summary.domain
    texts = [domain.warning if domain else "", *facts.summary.input_doubts]
    return [
        NextStep(
            "Check the calibration samples.",
            f"{_capital(text)}. Give samples that are prepared as in training.",
            commands=[_quantize(facts)],
        )
        for text in texts
        if text
    ]


def _effort(facts: ReportFacts) -> list[NextStep]:
    more = MORE_EFFORT.get(facts.summary.effort)
    if (level(facts) or 0) < NOTICEABLE or more is None:
        return []
    return [
        NextStep(
            f"Quantize again with `--effort {more}`.",
            "It tries steps that work without training, such as equalized channels and corrected "
            "biases, on part of the samples, and keeps those that help.",
            commands=[_quantize(facts, "--effort", more)],
        )
    ]


def _retrain(facts: ReportFacts) -> list[NextStep]:
    if level(facts) != len(LEVELS):
        return []
    return [
        NextStep(
            "Retrain, or use more bits.",
            "The outputs are too far from float for better thresholds alone. Training takes "
            "images, with labels or without.",
            commands=[
                _quantize(facts, "--mode", "retrain"),
                f"qgraph train {OUT} --data train.npz --validation validation.npz",
                f"qgraph finalize {OUT}",
            ],
        )
    ]


def _weak_layers(facts: ReportFacts) -> list[NextStep]:
    """Layers that add noise, the most first; layers that only pass noise on are left out."""
    weak = [y for y in facts.layers if _decibels(y) < WEAK_DB]
    guilty = [y for y in weak if _lost(y) >= LOST_DB] or weak
    return [
        NextStep(
            f"Look at `{layer.entry.name}`.",
            f"{_fall(layer)} {_cause(layer)}",
            layer.id,
            [shlex.join(["qgraph", "analyze", facts.summary.model, "-c", SAMPLES])],
        )
        for layer in sorted(guilty, key=lambda y: (-_lost(y), _decibels(y)))[:NAMED]
    ]


def _decibels(layer: LayerFacts) -> float:
    return math.inf if layer.entry.sqnr_db is None else layer.entry.sqnr_db


def _lost(layer: LayerFacts) -> float:
    """The loss in dB between a layer's input and output, counted down to 0 dB."""
    before = layer.input_sqnr_db
    return max(before, 0.0) - max(_decibels(layer), 0.0) if before is not None else 0.0


def _fall(layer: LayerFacts) -> str:
    found = _decibels(layer)
    if _lost(layer) >= LOST_DB:
        return f"SQNR falls from {layer.input_sqnr_db:.1f} to {found:.1f} dB here."
    return f"Its output has {found:.1f} dB: noise is {percent(noise_share(found))} of the signal."


def _cause(layer: LayerFacts) -> str:
    weights = layer.weight_tensor.statistics if layer.weight_tensor else None
    share = weights.vanished / weights.elements if weights and weights.elements else 0.0
    if layer.reasons:
        return f"{_capital(layer.reasons[0])}."
    if share > VANISHED:
        return (
            f"{rounds_to_zero(share)}, because the largest weights determine the step: "
            "equalized channels, scales per channel or more bits help."
        )
    return (
        "See whether a few large values widen its ranges; try another `--method`, or more bits "
        "in the profile."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _costly_groups(facts: ReportFacts) -> list[NextStep]:
    costly = [g for g in facts.scale_groups if g.lost_bits >= LOST_BITS and not g.inside_layer]
    steps = []
    for group in sorted(costly, key=lambda g: -g.lost_bits)[:NAMED]:
        loser = max(group.members, key=lambda m: m.lost_bits)
        ops = ", ".join(sorted({forced.op for forced in group.forced_by})) or "an op"
        cost = f", {loser.cost_db:.1f} dB" if loser.cost_db else ""
        steps.append(
            NextStep(
                f"Free `{loser.name}` of scale group {group.name}.",
                f"It shares the scale of `{group.widest}` because of {ops}, which costs it "
                f"{counted(loser.lost_bits, 'bit')}{cost}.",
                group.id,
            )
        )
    return steps


def _clipping(facts: ReportFacts) -> list[NextStep]:
    clipped = [(y.clipped or 0.0, y) for y in facts.layers]
    much = sorted((c for c in clipped if c[0] > CLIPPED), key=lambda c: -c[0])
    return [
        NextStep(
            f"Check the threshold of `{layer.entry.name}`.",
            f"{percent(share)} of its output is clipped. `--method max` clips nothing, but has "
            "coarser steps; `percentile` and `mse` are between.",
            layer.id,
            [_quantize(facts, "--method", "max")],
        )
        for share, layer in much[:NAMED]
    ]


def _accuracy(facts: ReportFacts) -> list[NextStep]:
    if facts.evaluation is not None:
        return []
    return [
        NextStep(
            "Measure accuracy on labelled data.",
            "A test set shows the accuracy of the float network and of this one. DIRECTORY is the "
            "directory of this page.",
            commands=["qgraph evaluate DIRECTORY --data test.npz"],
        )
    ]


def _float_ops(facts: ReportFacts) -> list[NextStep]:
    ops = facts.float_ops
    if not ops:
        return []
    kinds = ", ".join(sorted({op.op for op in ops}))
    scaled = parse_plan(facts.summary.plan_spec).scale_inputs
    what = "one op" if len(ops) == 1 else f"{len(ops)} ops"
    return [
        NextStep(
            f"Decide where {what} in float should run.",
            f"{kinds}: outside the integer graph. If the target has no floating point, end "
            "the network before it: `--outputs NAME`." + f" {SCALED_INPUTS}" * scaled,
            "float-ops",
            [_quantize(facts, "--outputs", "NAME")],
        )
    ]


def _samples(facts: ReportFacts) -> list[NextStep]:
    count = facts.summary.calibration_samples
    if count >= FEW_SAMPLES or facts.summary.data_free:
        return []
    return [
        NextStep(
            "Calibrate on more samples.",
            f"Thresholds come from {count}: a few dozen that are like real inputs are better.",
            commands=[_quantize(facts)],
        )
    ]
