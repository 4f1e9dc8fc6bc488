"""What the numbers say: a verdict, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qgraph.static.agreement import LEVELS, level_of
from qgraph.static.causes import VANISHED, rounds_to_zero
from qgraph.static.cautions import CLIPPED
from qgraph.words import counted, noise_share, percent

NOTICEABLE = 2
COLLAPSED = "Far from float"
WEAK_DB = 20.0
LOST_DB = 3.0
LOST_BITS = 1
FEW_SAMPLES = 32
TELLING_SAMPLES = 8  # fewer that calibration saw too say nothing of others
NAMED = 3
SCALED_INPUTS = (
    "What scales input features is a shift each for whoever turns inputs into codes; a `--plan` "
    "without `scale-inputs` has none of it."
)
MORE_EFFORT = {"plain": "default", "fast": "default", "default": "thorough"}

Facts = Mapping[str, Any]


def _noise(facts: Facts) -> tuple[str, float] | None:
    """Where noise was measured last, and dB: all outputs, the worst one, or the last layer."""
    summary = facts["summary"]
    agreement = summary["agreement"]
    if agreement and agreement["sqnr"] is not None:
        return "outputs", agreement["sqnr"]
    known = {n: db for n, db in summary["outputs_sqnr_db"].items() if db is not None}
    if known:
        name = min(known, key=lambda n: float(known[n]))
        return f"output `{name}`", known[name]
    measured = [layer for layer in facts["layers"] if layer["sqnr_db"] is not None]
    return (f"last layer `{measured[-1]['name']}`", measured[-1]["sqnr_db"]) if measured else None


def level(facts: Facts) -> int | None:
    """Where the outputs stand in `LEVELS`, its length for collapsed; None if not measured."""
    noise, agreement = _noise(facts), facts["summary"]["agreement"]
    share = agreement["top1"] if agreement else None
    if noise is None and share is None:
        return None
    decibel = noise[1] if noise else float("inf")
    return level_of(decibel, share, agreement["samples"] if agreement else 0)


def verdict(facts: Facts) -> str:
    """One sentence, of what was measured and nothing else."""
    place, noise, summary = level(facts), _noise(facts), facts["summary"]
    if summary["training"]:
        return f"{trained(summary['training'])}; a test set was not measured."
    if place is None:
        return "Not known: no output was compared with the float network."
    found = summary["agreement"]
    count = found["samples"] if found else summary["measured_samples"]
    apart = found and found["held_out"]
    kept = "kept apart from" if apart else "that served"
    parts = []
    if noise:
        share = percent(noise_share(noise[1]))
        parts.append(f"noise at the {noise[0]} is {share} of the signal ({noise[1]:.1f} dB)")
    if found and found["top1"] is not None:
        parts.append(f"the float network's answer is kept on {percent(found['top1'])}")
    word = LEVELS[place][2] if place < len(LEVELS) else COLLAPSED
    if not apart and count < TELLING_SAMPLES:
        word = "Too few samples to tell"
    return (
        f"{word}: on {counted(count, 'sample')} {kept} calibration, {' and '.join(parts)}; "
        "accuracy on labelled data was not measured."
    )


def trained(training: Facts) -> str:
    """What training came to, by its validation: `Trained: ...`, without a full stop."""
    if not training["history"]:
        return "Trained in a script of its own, which keeps no record here"
    best, first = training["best"], training["history"][0]
    steps = f"after {counted(best['step'], 'step')}"
    if best["accuracy"] is None:
        return f"Trained, as it was {steps}"
    what = "as the float network decides" if training["loss"] != "labels" else "right"
    return (
        f"Trained: {percent(best['accuracy'])} of the validation samples are {what} {steps}, "
        f"{percent(first['accuracy'])} were before"
    )


# -- what to do next ------------------------------------------------------------------------


def next_steps(facts: Facts) -> list[dict[str, str]]:
    """`what` to do, `why`, and the page's anchor that it is about, most urgent first."""
    if facts["summary"]["training"]:
        return [*_accuracy(), *_float_ops(facts)]
    return [
        *_without_data(facts),
        *_domain(facts),
        *_effort(facts),
        *_retrain(facts),
        *_weak_layers(facts),
        *_costly_groups(facts),
        *_clipping(facts),
        *_accuracy(),
        *_float_ops(facts),
        *_samples(facts),
    ]


def _step(what: str, why: str, anchor: str = "") -> dict[str, str]:
    return {"what": what, "why": why, "anchor": anchor}


def _without_data(facts: Facts) -> list[dict[str, str]]:
    if not facts["summary"]["data_free"]:
        return []
    return [
        _step(
            "Calibrate on data.",
            "Thresholds come from batch-norm statistics: a few dozen typical inputs, without "
            "labels, are better, and show how near the outputs are (`--calibration`).",
        )
    ]


def _domain(facts: Facts) -> list[dict[str, str]]:
    texts = [(facts["summary"]["domain"] or {}).get("warning"), *facts["summary"]["input_doubts"]]
    return [_step("Check the calibration samples.", f"{_capital(text)}.") for text in texts if text]


def _effort(facts: Facts) -> list[dict[str, str]]:
    more = MORE_EFFORT.get(facts["summary"]["effort"])
    if (level(facts) or 0) < NOTICEABLE or more is None:
        return []
    return [
        _step(
            f"Quantize again with `--effort {more}`.",
            "It tries what helps without training, like equalized channels and corrected biases, "
            "on part of the samples, and keeps what does.",
        )
    ]


def _retrain(facts: Facts) -> list[dict[str, str]]:
    if level(facts) != len(LEVELS):
        return []
    return [
        _step(
            "Retrain, or use more bits.",
            "The outputs are too far from float for thresholds alone to bring back: "
            "`qgraph quantize --mode retrain`, then `qgraph train`. Images do, without labels.",
        )
    ]


def _weak_layers(facts: Facts) -> list[dict[str, str]]:
    """Where noise comes in, the most first; layers that only pass it on are not to blame."""
    weak = [y for y in facts["layers"] if y["sqnr_db"] is not None and y["sqnr_db"] < WEAK_DB]
    guilty = [y for y in weak if _lost(y) >= LOST_DB] or weak
    return [
        _step(f"Look at `{layer['name']}`.", f"{_fall(layer)} {_cause(layer)}", layer["id"])
        for layer in sorted(guilty, key=lambda y: (-_lost(y), y["sqnr_db"]))[:NAMED]
    ]


def _lost(layer: Facts) -> float:
    """dB between a layer's input and its output. Below 0 dB there is nothing left to lose."""
    before = layer["input_sqnr_db"]
    return max(before, 0.0) - max(layer["sqnr_db"], 0.0) if before is not None else 0.0


def _fall(layer: Facts) -> str:
    found = layer["sqnr_db"]
    if _lost(layer) >= LOST_DB:
        return f"SQNR falls from {layer['input_sqnr_db']:.1f} to {found:.1f} dB here."
    return f"Its output has {found:.1f} dB: noise is {percent(noise_share(found))} of the signal."


def _cause(layer: Facts) -> str:
    weights = layer["weight_tensor"] or {}
    share = weights["vanished"] / weights["elements"] if weights.get("elements") else 0.0
    if layer.get("reasons"):
        return f"{_capital(layer['reasons'][0])}."
    if share > VANISHED:
        return (
            f"{rounds_to_zero(share)}, because the largest set the step: "
            "equalized channels, scales per channel or more bits help."
        )
    return (
        "See whether a few far values stretch its ranges; try another `--method`, or more bits "
        "in the profile."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _costly_groups(facts: Facts) -> list[dict[str, str]]:
    costly = [
        g for g in facts["scale_groups"] if g["lost_bits"] >= LOST_BITS and not g["inside_layer"]
    ]
    steps = []
    for group in sorted(costly, key=lambda g: -int(g["lost_bits"]))[:NAMED]:
        loser = max(group["members"], key=lambda m: int(m["lost_bits"]))
        ops = ", ".join(sorted({f["op"] for f in group["forced_by"]})) or "an op"
        cost = f", {loser['cost_db']:.1f} dB" if loser["cost_db"] else ""
        steps.append(
            _step(
                f"Free `{loser['name']}` of scale group {group['name']}.",
                f"It shares the scale of `{group['widest']}` because of {ops}, which costs it "
                f"{counted(loser['lost_bits'], 'bit')}{cost}.",
                group["id"],
            )
        )
    return steps


def _clipping(facts: Facts) -> list[dict[str, str]]:
    clipped = [y for y in facts["layers"] if (y["clipped"] or 0) > CLIPPED]
    return [
        _step(
            f"Check the threshold of `{layer['name']}`.",
            f"{percent(layer['clipped'])} of its output is clipped. `--method max` clips nothing, "
            "for coarser steps; `percentile` and `mse` stand between.",
            layer["id"],
        )
        for layer in sorted(clipped, key=lambda y: -float(y["clipped"]))[:NAMED]
    ]


def _accuracy() -> list[dict[str, str]]:
    return [
        _step(
            "Measure accuracy on labelled data.",
            "Run `inference.pb` or `saved_model` on a test set: it gives the target's numbers "
            "to the bit.",
        )
    ]


def _float_ops(facts: Facts) -> list[dict[str, str]]:
    ops = facts["float_ops"]
    if not ops:
        return []
    kinds = ", ".join(sorted({op["op"] for op in ops}))
    scaled = "scale-inputs" in facts["summary"]["plan_spec"].split(",")
    what = "one op" if len(ops) == 1 else f"{len(ops)} ops"
    return [
        _step(
            f"Decide where {what} in float should run.",
            f"{kinds}: outside the integer graph. Where the target has no floating point, end "
            "the network before it: `--outputs NAME`." + f" {SCALED_INPUTS}" * scaled,
            "float-ops",
        )
    ]


def _samples(facts: Facts) -> list[dict[str, str]]:
    count = facts["summary"]["calibration_samples"]
    if count >= FEW_SAMPLES or facts["summary"]["data_free"]:
        return []
    return [
        _step(
            "Calibrate on more samples.",
            f"Thresholds come from {count}: a few dozen that look like real inputs are better.",
        )
    ]
