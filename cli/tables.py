"""Tables about a quantized network, from its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from qgraph.choices import Effort
from qgraph.cli.console import (
    Names,
    console,
    print_command,
    print_last,
    print_next,
    print_table,
    print_warnings,
)
from qgraph.quant.plan import PLAIN
from qgraph.reporting.advice import trained
from qgraph.static.facts import (
    AgreementFacts,
    ChoiceFacts,
    MixedFacts,
    PartFacts,
    PointFacts,
    TrialFacts,
    decibels,
)
from qgraph.stored.manifest import Exponent, LayerEntry, Manifest
from qgraph.stored.write import FILES
from qgraph.words import counted, percent

FLOAT_OPS_SHOWN = 8
TRIALS_SHOWN = 6
LEGEND = (
    "acc bits: bits that the accumulator needs; exact in: float type that represents its sums "
    "exactly; SQNR: signal-to-quantization-noise ratio of the output\n"
)
SENSITIVITY_LEGEND = (
    "alone: only this part is quantized; all but: only this part is not quantized; dB: SQNR of the "
    "outputs (logits) on {} samples; as float: share with the same class as the float network\n"
)
MIXED_LEGEND = (
    "best: no measured network is both smaller and closer to float; bits: share of the weights "
    "with each number of bits\n"
)


def print_quantized(manifest: Manifest) -> None:
    """Print the layers, and the ops that stay float."""
    found, facts = manifest.layers, manifest.facts
    print_table(
        f"{len(found)} layers, profile {manifest.profile.name}",
        ("layer", "=op", ">weight", ">output", ">acc\nbits", "=exact\nin", ">SQNR\ndB"),
        [_layer(layer) for layer in found],
    )
    console().print(LEGEND, style="dim")
    if facts.training is not None:
        console().print(f"{trained(facts.training)}.\n", soft_wrap=True)
    else:
        _print_plan(facts.choice)
    if facts.agreement is not None:
        _print_agreement(facts.agreement)
    for note in facts.notes:
        console().print(f"note: {note}\n", soft_wrap=True)
    print_inputs_seen(facts.samples.inputs_seen)
    kept = manifest.float_ops
    if kept:
        shown = ", ".join(f"{op.name} ({op.op})" for op in kept[:FLOAT_OPS_SHOWN])
        more = len(kept) - FLOAT_OPS_SHOWN
        rest = f" and {more} more (see manifest.json)" if more > 0 else ""
        console().print(f"Ops that stay float, outside the integer graph: {shown}{rest}.\n")


def _print_plan(choice: ChoiceFacts) -> None:
    """Print the steps of the plan, and how to repeat them."""
    _print_trials(choice.trials)
    again = choice.plan.spec()
    bits = " --profile profile.yaml (the file is in the output directory)" if choice.mixed else ""
    steps = "To repeat this without a search" if choice.trials else "Plan"
    console().print(f"{steps}: --plan {again}{bits}\n", soft_wrap=True)
    if choice.mixed is not None:
        print_mixed(choice.mixed)


def _print_trials(trials: Sequence[TrialFacts]) -> None:
    """Print the plans that were tried, the best one first."""
    if not trials:
        return
    rows = [
        (
            str(trial.plan),
            _decibel(decibels(trial.agreement.sqnr)),
            _share(trial.agreement.top1),
        )
        for trial in trials[:TRIALS_SHOWN]
    ]
    samples = counted(trials[0].agreement.samples, "sample")
    columns = ("plan", ">SQNR\ndB", ">as\nfloat")
    title = f"{len(trials)} plans compared on {samples}, the best first (it is used)"
    if len(trials) > len(rows):
        title = f"{title}; {len(rows)} are shown"
    if len(trials) == 1:
        title = f"one plan tried, on {samples}"
    print_table(title, columns, rows)


def _print_agreement(found: AgreementFacts) -> None:
    words = [f"SQNR of the outputs {_decibel(found.sqnr)} dB"]
    if found.top1 is not None:
        words.append(f"{_share(found.top1)} get the same class as from the float network")
    kept = "that calibration did not see" if found.held_out else "that calibration saw too"
    console().print(f"On {counted(found.samples, 'sample')} {kept}: {', '.join(words)}.\n")


def _decibel(value: float | None, missing: str = "-") -> str:
    return missing if value is None else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _layer(layer: LayerEntry) -> tuple[Names | str, ...]:
    sqnr = layer.sqnr_db
    return (
        Names(layer.name),
        layer.op.removesuffix("_conv2d"),
        f"{layer.weight_bits}b {_scale(layer.weight_exponent)}",
        f"{layer.output_bits}b {_scale(layer.output_exponent)}" if layer.output else "-",
        str(layer.accumulator_bits),
        layer.exact_in,
        "-" if sqnr is None else f"{sqnr:.1f}",
    )


def _scale(exponent: Exponent) -> str:
    if isinstance(exponent, tuple):
        least, most = -max(exponent), -min(exponent)
        return f"2^{least}" if least == most else f"2^{least}..{most}"
    return f"2^{-exponent}" if exponent is not None else "?"


def print_sensitivity(manifest: Manifest, top: int) -> None:
    """Print the layers that cost the most accuracy, the worst first, and why."""
    found = manifest.facts.sensitivity
    if not found:
        console().print("No part of this network is quantized.\n")
        return
    rows = [
        (
            Names(entry.layer),
            _decibel(entry.sqnr_db, "exact"),
            _share(entry.top1),
            _decibel(entry.all_but_sqnr_db, "exact"),
            _share(entry.all_but_top1),
            _reason(entry),
        )
        for entry in found[:top]
    ]
    more = f", the worst {top} of them" if len(found) > top else ""
    title = f"{len(found)} parts with quantizers{more}, profile {manifest.profile.name}"
    columns = ("part", ">alone\ndB", ">as\nfloat", ">all but\ndB", ">as\nfloat", "why")
    print_table(title, columns, rows)
    console().print(SENSITIVITY_LEGEND.format(found[0].samples), style="dim")
    if manifest.facts.agreement is not None:
        _print_agreement(manifest.facts.agreement)


def _reason(entry: PartFacts) -> str:
    """The likely reason, and the SQNR with only the weights or only the output quantized."""
    where = entry.where_db
    stages = ", ".join(f"{kind} {_decibel(db, 'exact')}" for kind, db in where.items())
    reason = entry.reasons[0] if entry.reasons else ""
    return f"{reason} ({stages} dB)" if reason else "-"


def print_next_steps(given: Sequence[str], manifest: Manifest) -> None:
    """Print the next command, by the result; `given`: the model and options as typed."""
    effort, plan = manifest.facts.choice.effort, manifest.facts.choice.plan_spec
    plain = effort == Effort.PLAIN and plan == PLAIN.spec()
    how = ("--plan", plan) if effort == Effort.PLAIN else ("--effort", str(effort))
    quantize = ["quantize", *given, *(("--effort", "default") if plain else how)]
    if not plain:
        bits = str(manifest.profile.bits.weight)
        print_command("to choose bits per layer:", [*quantize, "--mean-bits", bits, "-o", "out"])
    print_next([*quantize, "-o", "out"])


def print_mixed(mixed: MixedFacts) -> None:
    """Print measurements for bits chosen layer by layer, and for the same bits everywhere."""
    rows = [
        (
            f"{point.weight_bytes:,}",
            f"{point.mean_bits:.2f}",
            "same everywhere" if point.uniform else _shares_of_bits(mixed, point),
            _decibel(point.sqnr_db, "exact"),
            _share(point.top1),
            ("used" if point.kept else "") or ("best" if point.front else ""),
        )
        for point in mixed.points
    ]
    columns = (
        ">weight\nbytes",
        ">mean\nbits",
        "bits of the weights",
        ">SQNR\ndB",
        ">as\nfloat",
        "=",
    )
    print_table(f"bits of weights, compared on {mixed.samples} samples", columns, rows)
    console().print(MIXED_LEGEND, style="dim")


def _shares_of_bits(mixed: MixedFacts, point: PointFacts) -> str:
    """Shares of the weights, such as `4: 61 %, 8: 39 %`."""
    sizes: dict[int, int] = {}
    for name, bits in point.bits.items():
        sizes[bits] = sizes.get(bits, 0) + mixed.weights[name]
    whole = sum(sizes.values())
    return ", ".join(f"{bits}: {percent(size / whole)}" for bits, size in sorted(sizes.items()))


def print_next_bits(given: Sequence[str], budgets: Sequence[float]) -> None:
    """Print the next command; `given` as for `print_next_steps`."""
    bits = f"{budgets[len(budgets) // 2]:g}"
    print_next(["quantize", *given, "--mean-bits", bits, "-o", "out"])


def print_inputs_seen(seen: Mapping[str, Sequence[float]]) -> None:
    """Print the range of each input on the samples."""
    ranges = [f"{name} in [{low:g}, {high:g}]" for name, (low, high) in seen.items()]
    if ranges:
        console().print(f"Input ranges: {', '.join(ranges)}.\n", soft_wrap=True)


def print_files(output: Path, manifest: Manifest) -> None:
    """Print the files, the next commands and, last, the warnings."""
    print_table(
        "files",
        ("=file", "content"),
        [
            (name + "/" * (output / name).is_dir(), what)
            for name, what in FILES.items()
            if (output / name).exists()
        ],
    )
    print_last(output, ["verify", str(output)], ["report", str(output)])
    print_warnings(manifest.facts.warnings)
