"""`qgraph verify`: compare exported forms, or codes of a user, with the integer reference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import ExportFormat
from qgraph.cli.choice import choice
from qgraph.cli.options import OUTPUT_DIRECTORY, Json
from qgraph.errors import UsageError
from qgraph.words import alternatives

if TYPE_CHECKING:
    from qgraph.cli.console import Names
    from qgraph.verification.certificate import (
        AccumulatorEntry,
        Certificate,
        ComparedForm,
        RequantizationEntry,
        SkippedForm,
    )
    from qgraph.verification.compare import Difference, Saturation
    from qgraph.verification.dump import Checked
    from qgraph.verification.explain import Line

TERMS_SHOWN = 6


def verify(
    directory: Annotated[Path, typer.Argument(help=OUTPUT_DIRECTORY)],
    forms: Annotated[
        list[ExportFormat] | None,
        choice(
            ExportFormat, "format", "--format", "-f", metavar="FORMAT",
            help=f"Check only this format: {alternatives(ExportFormat)}. Repeatable.",
            show_default="all formats",
        ),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option(
            "--files", metavar="EXPORTED",
            help="Directory that `qgraph export` wrote: check its files.",
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            "--input", "-i", metavar="FILE", help="Inputs to run, as a .npy or .npz file.",
            show_default="samples that `quantize` stored",
        ),
    ] = None,
    dump: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="FILE",
            help="Codes from your hardware or another tool to compare: a .npz with an array for "
            "each tensor.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Use only the first N inputs.")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare codes of each tensor with the integer reference, at tolerance zero.

    Writes certificate.json. If codes differ, prints the first difference and exits with code 9.
    """
    if dump is not None:
        others = {"--files": files, "--format": forms, "--input": inputs, "--limit": limit}
        excluded = [flag for flag, value in others.items() if value]
        if excluded:
            raise UsageError(f"--against excludes {excluded[0]}", hint="give one of them")
        _against(directory, dump, as_json)
    else:
        _forms(directory, forms or [], files, inputs, limit, as_json)


def _forms(
    directory: Path,
    forms: Sequence[str],
    files: Path | None,
    inputs: Path | None,
    limit: int | None,
    as_json: bool,
) -> None:
    from qgraph.cli.console import at_work, print_next
    from qgraph.errors import ExactnessError
    from qgraph.records import to_json
    from qgraph.verification.verify import verify

    with at_work(as_json) as progress:
        found = verify(directory, inputs, limit=limit, forms=forms, files=files, progress=progress)
    if as_json:
        print(json.dumps(to_json(found.certificate)))
    else:
        title = "" if files is None else f"files in {files} "
        _print_certificate(found.certificate, title, hints=bool(forms))
    if not found.equal:
        raise ExactnessError(
            "forms differ from the integer reference"
            if found.compared.tallies
            else "no form was compared",
            node=str(directory),
        )
    if not as_json:
        target = forms[0] if len(forms) == 1 else ExportFormat.C
        export = ["export", str(directory), "--format", target, "--output", "exported"]
        print_next(export if files is None else ["report", str(directory)])


def _print_certificate(found: Certificate, files: str, *, hints: bool) -> None:
    """Print the tables. hints: whether forms that were left out come with what to do."""
    from qgraph.cli.console import console, print_table
    from qgraph.verification.certificate import ComparedForm

    print_table(
        f"{len(found.accumulators)} accumulators, profile {found.profile}",
        ("layer", "=op", ">terms", ">lowest", ">highest", ">bits\nneeded", "=float32", "=float64"),
        [_accumulator(layer) for layer in found.accumulators],
    )
    counted = [(r, r.saturated) for r in found.requantizations if r.saturated is not None]
    saturated = [(r, count) for r, count in counted if count.below or count.above]
    if saturated:
        print_table(
            "requantizations that saturated on samples",
            ("tensor", ">shift", "=rounding", ">below", ">above", ">of"),
            [_requantization(*pair) for pair in saturated],
        )
    cases = ", ".join(f"{count} {label}" for label, count in found.cases.items())
    print_table(
        f"{files}against the integer reference, tolerance 0, on\n{cases}",
        ("form", ">tensors", ">elements", ">differences", ">seconds", ""),
        [_form(name, form, hints) for name, form in found.forms.items()],
    )
    _print_islands(found)
    for name, form in found.forms.items():
        if isinstance(form, ComparedForm):
            for first in form.first:
                console().print(_difference(first), style="red", soft_wrap=True)
            if form.fault:
                console().print(f"{name}: {form.fault}", style="red", soft_wrap=True)


def _print_islands(found: Certificate) -> None:
    """Name the float ops between segments, and say what each whole run made of them."""
    from qgraph.cli.console import console
    from qgraph.verification.certificate import ComparedForm

    if not found.islands:
        return
    ops = ", ".join(f"{op.name} ({op.op})" for island in found.islands for op in island.ops)
    console().print(
        f"Float ops between the {len(found.islands) + 1} integer segments: {ops}. Each segment was "
        "compared on the codes that it begins with.",
        soft_wrap=True,
    )
    for name, form in found.forms.items():
        if isinstance(form, ComparedForm) and form.island_codes:
            console().print(
                f"{name} ran as a whole too: {form.moved_codes:,} of {form.island_codes:,} codes "
                "behind float ops are one step from the reference's, and all others are equal.",
                soft_wrap=True,
            )
    console().print()


def _accumulator(layer: AccumulatorEntry) -> tuple[Names | str, ...]:
    from qgraph.cli.console import Names

    exact = ["exact" if kind.exact else "no" for kind in (layer.float32, layer.float64)]
    numbers = (f"{n:,}" for n in (layer.terms, layer.lowest, layer.highest, layer.bits))
    return (Names(layer.layer), layer.op, *numbers, *exact)


def _requantization(found: RequantizationEntry, saturated: Saturation) -> tuple[Names | str, ...]:
    from qgraph.cli.console import Names

    shift = found.shift
    text = str(shift) if isinstance(shift, int) else f"{min(shift)}..{max(shift)}"
    counts = (f"{n:,}" for n in (saturated.below, saturated.above, saturated.elements))
    return (Names(found.tensor), text, found.rounding, *counts)


def _form(name: str, form: ComparedForm | SkippedForm, hints: bool) -> tuple[str, ...]:
    from qgraph.verification.certificate import SkippedForm

    if isinstance(form, SkippedForm):
        reason = form.reason if hints else form.reason.split("\n")[0]
        return (name, "", "", "", "", f"not compared: {reason}")
    verdict = "equal" if form.equal else "DIFFERS"
    numbers = (f"{n:,}" for n in (form.tensors, form.elements, form.differences))
    named = form.executor is None or name.endswith(form.executor)
    shown = verdict if named else f"{form.executor}: {verdict}"
    return (name, *numbers, f"{form.seconds:.1f}", shown)


def _difference(first: Difference) -> str:
    at = ", ".join(map(str, first.index))
    return (
        f"first in {first.tensor} [{at}]: {first.actual}, the reference has {first.expected} "
        f"({first.count} in this tensor, case `{first.label}`)"
    )


# -- a user's own codes ---------------------------------------------------------------------


def _against(directory: Path, file: Path, as_json: bool) -> None:
    from qgraph.archives import read_arrays
    from qgraph.cli.console import at_work, console, print_next
    from qgraph.errors import ExactnessError, UsageError
    from qgraph.stored import load_network
    from qgraph.verification.dump import against

    with at_work(as_json):
        dump = read_arrays(file)
        network = load_network(directory)
        try:
            found = against(network, dump)
        except UsageError as error:
            error.node = str(file)
            raise
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        _print_checked(found)
    if found.differences:
        raise ExactnessError(
            f"{len(found.differences)} of {len(found.tensors)} tensors differ from the integer "
            "reference",
            node=str(file),
        )
    if not as_json:
        console().print("equal to the integer reference, to the last bit", style="green")
        print_next(["report", str(directory)])


def _row(one: Difference) -> tuple[Names | str, ...]:
    from qgraph.cli.console import Names

    first = str(list(one.index))
    return (Names(one.tensor), f"{one.count:,}", first, str(one.actual), str(one.expected))


def _print_checked(found: Checked) -> None:
    from qgraph.cli.console import console, print_table

    if found.differences:
        print_table(
            "tensors that differ, in the order of computation",
            ("tensor", ">different", "=first at", ">given", ">reference"),
            [_row(one) for one in found.differences],
        )
        console().print("how the reference computes the first one:", style="bold")
        for line in found.computation:
            console().print(f"  {_line(line)}", soft_wrap=True)
        console().print()
    if found.unknown:
        console().print(f"not in the network: {', '.join(found.unknown)}\n", soft_wrap=True)
    text = f"{len(found.tensors)} tensors, {found.elements:,} elements compared"
    console().print(text, soft_wrap=True)


def _line(line: Line) -> str:
    from qgraph.program.ops import OpClass, program_op

    attrs = ", ".join(f"{key}={value}" for key, value in line.attrs.items() if _short(value))
    head = f"{line.tensor}{list(line.index)} = {line.code} by {line.op}"
    if program_op(line.op).family is OpClass.PRODUCT:
        pairs = list(zip(line.sources[::2], line.sources[1::2], strict=True))
        shown = " + ".join(f"{x[2]}*{w[2]}" for x, w in pairs[:TERMS_SHOWN])
        more = f" + ... {len(pairs) - TERMS_SHOWN} more" if len(pairs) > TERMS_SHOWN else ""
        place = f", from {pairs[0][0][0]}{list(pairs[0][0][1])} on" if pairs else ""
        return f"{head}: {shown}{more}{place}"
    made_of = ", ".join(f"{name}{list(at)}={code}" for name, at, code in line.sources[:TERMS_SHOWN])
    return f"{head} of {made_of or 'padding'}{f' ({attrs})' if attrs else ''}"


def _short(value: object) -> bool:
    return not isinstance(value, tuple) or len(value) <= TERMS_SHOWN
