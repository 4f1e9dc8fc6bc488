"""A SystemVerilog testbench that reads the vectors of places and computes them again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import SupportsInt

import numpy as np

from qgraph.backends.vectors.cases import ExtremeSamples
from qgraph.backends.vectors.files import hexadecimal
from qgraph.ir.types import ROUNDINGS, Rounding
from qgraph.ops.lowerings import LoweringRefusal, Lowerings
from qgraph.program import Program, Step
from qgraph.program.ops import (
    OPS,
    ClipAttrs,
    Conv2dAttrs,
    LookupAttrs,
    RequantizeAttrs,
    WindowAttrs,
)
from qgraph.program.ops.layout import PerChannel
from qgraph.records import JSON

# Limits of the products in a check, and in one row; simulators compute a few million per second.
PRODUCTS, MAX_PRODUCTS = 1 << 19, 1 << 21
NO_LIMIT = 1 << 60
Check = tuple[str, dict[str, JSON]]  # kind and parameters
# The expression of `pair_check` in modules.sv for codes p and q; q is p for a single operand.
PAIRS = {
    "add": "p + q",
    "sub": "p - q",
    "mul": "p * q",
    "maximum": "p > q ? p : q",
    "minimum": "p < q ? p : q",
    "abs": "p < 0 ? -p : p",
}
Facts = Callable[[str], Mapping[str, JSON]]

# Modules that each check a step, and the start of the testbench.
MODULES = Path(__file__).with_name("modules.sv")
END = """\
        $display("%0s: %0d of %0d codes differ", wrong == 0 ? "PASS" : "FAIL", wrong, seen);
        $finish;
    end
endmodule
"""


def bench(
    program: Program,
    extreme_samples: Sequence[tuple[str, ExtremeSamples]],
    stems: Mapping[str, str],
    facts: Facts,
    folder: Path,
) -> tuple[str, list[dict[str, str]]]:
    """The text of the testbench, and its checks: the step and the kind of each.

    extreme_samples: those of each place, with its folder. Per-channel shifts are written to files
    in `folder`.
    """
    checks: list[tuple[str, str, dict[str, JSON]]] = []
    for place, one in extreme_samples:
        for step in one.place.program.steps:
            made = _check(_Step(program, place, one, step, stems, facts, folder))
            if made is not None:
                checks.append((*made[:1], step.output, made[1]))
    lines = [_modules()]
    for i, (kind, name, parameters) in enumerate(checks):
        given = ", ".join(f".{key}({_written(value)})" for key, value in parameters.items())
        lines.append(f"    {kind}_check #(.NAME({_written(name)}), {given}) c{i}();\n")
    lines.append("\n    initial begin\n")
    for i in range(len(checks)):
        lines.append(
            f"        c{i}.check;\n"
            f"        wrong = wrong + c{i}.result.wrong;\n        seen = seen + c{i}.result.seen;\n"
        )
    lines.append(END)
    return "".join(lines), [{"tensor": name, "check": kind} for kind, name, _ in checks]


def _modules() -> str:
    cases = "".join(f"{' ' * 16}{i}: v = {made};\n" for i, made in enumerate(PAIRS.values()))
    return MODULES.read_text("ascii").replace(f"{' ' * 16}// bench.py writes the cases.\n", cases)


def _written(value: object) -> str:
    if isinstance(value, str):
        plain = (c if c.isascii() and c.isprintable() and c not in '"\\' else "?" for c in value)
        return f'"{"".join(plain)}"'
    assert isinstance(value, SupportsInt), value
    number = int(value)
    return str(number) if abs(number) < 1 << 31 else f"{'-' * (number < 0)}64'sd{abs(number)}"


class _Step:
    """A step of a place, with the files of its tensors."""

    def __init__(
        self,
        program: Program,
        place: str,
        samples: ExtremeSamples,
        step: Step,
        stems: Mapping[str, str],
        facts: Facts,
        folder: Path,
    ) -> None:
        self.program, self.place, self.step = program, place, step
        self.stems, self.facts, self.folder = stems, facts, folder
        self.codes = {**samples.place.program.constants, **samples.codes}

    def file(self, name: str) -> str:
        constant = name in self.program.constants
        whole = constant and self.codes[name].shape == self.program.constants[name].shape
        return f"{'constants' if whole else self.place}/{self.stems[name]}.hex"

    def has_files(self, names: Sequence[str]) -> bool:
        return all((self.folder / self.file(name)).exists() for name in names)

    def width(self, letter: str, name: str) -> dict[str, JSON]:
        facts = self.facts(name)
        return {
            letter: self.file(name),
            f"{letter}_BITS": facts["bits"],
            f"{letter}_SIGNED": int(bool(facts["signed"])),
        }


def _check(one: _Step) -> Check | None:
    """The kind of a check and its parameters; None for steps without a check."""
    step = one.step
    if not one.has_files([*step.inputs, step.output]):
        return None
    if step.op in LOWERINGS.lowered:
        return LOWERINGS.of(step.op, step.output)(one)
    LOWERINGS.refusal(step.op, step.output)
    return None


def _sums(one: _Step) -> Check | None:
    (x, w), y = one.step.inputs, one.step.output
    rows, (outputs, inputs) = len(one.codes[y]), (one.codes[v].shape[-1] for v in (y, x))
    taps = math.prod(one.codes[x].shape[1:-1])
    attrs = one.step.attrs
    groups = attrs.groups if isinstance(attrs, Conv2dAttrs) else 1
    if isinstance(attrs, WindowAttrs) and not isinstance(attrs, Conv2dAttrs):
        groups = inputs
    each = taps * (inputs // groups) * outputs
    sizes = {"TAPS": taps, "INPUTS": inputs, "OUTPUTS": outputs, "GROUPS": groups}
    if each > MAX_PRODUCTS:
        return None
    widths = {**one.width("X", x), **one.width("W", w), **one.width("Y", y)}
    return "sums", {
        "ROWS": min(rows, max(1, PRODUCTS // each)),
        "FILE_ROWS": rows,
        **sizes,
        **widths,
    }


def _clip(one: _Step) -> Check | None:
    attrs = one.step.attrs_as(ClipAttrs)
    return _limited(one, (attrs.low, attrs.high), 0, Rounding.FLOOR, wraps=False)


def _requantize(one: _Step) -> Check | None:
    attrs = one.step.attrs_as(RequantizeAttrs)
    bounds = (attrs.low, attrs.high)
    return _limited(one, bounds, attrs.shift, attrs.rounding, wraps=attrs.wraps)


def _limited(
    one: _Step,
    bounds: Sequence[PerChannel | None],
    shift: PerChannel,
    rounding: Rounding,
    *,
    wraps: bool,
) -> Check | None:
    """A rounded shift and a range."""
    x, y = one.step.inputs[0], one.step.output
    if any(isinstance(b, tuple) for b in bounds) or np.min(shift) < -8 or np.max(shift) > 60:
        return None
    low = -NO_LIMIT if bounds[0] is None else bounds[0]
    high = NO_LIMIT if bounds[1] is None else bounds[1]
    parameters = {
        **one.width("X", x),
        **one.width("Y", y),
        "COUNT": one.codes[y].size,
        "LOW": low,
        "HIGH": high,
        "ROUNDING": ROUNDINGS.index(rounding),
        "WRAP": int(wraps),
    }
    if isinstance(shift, int):
        return "requantize", {**parameters, "SHIFT": shift}
    name = f"{one.place}/{one.stems[y]}.shifts.hex"
    (one.folder / name).write_bytes(hexadecimal(np.asarray(shift), 8))
    return "requantize", {**parameters, "SHIFTS": name, "CHANNELS": len(shift)}


def _pair(one: _Step) -> Check | None:
    a, b, y = one.step.inputs[0], one.step.inputs[-1], one.step.output
    shape, size = one.codes[y].shape, one.codes[b].size
    constant = b in one.program.constants and size in (1, shape[-1])
    if one.codes[a].shape != shape or not (constant or one.codes[b].shape == shape):
        return None
    widths = {**one.width("A", a), **one.width("B", b), **one.width("Y", y)}
    sizes = {"COUNT": one.codes[y].size, "CHANNELS": size, "OP": [*PAIRS].index(one.step.op)}
    return "pair", {**sizes, **widths}


def _lookup(one: _Step) -> Check:
    (x, table), y = one.step.inputs, one.step.output
    widths = {**one.width("X", x), **one.width("TABLE", table), **one.width("Y", y)}
    sizes = {"COUNT": one.codes[y].size, "ENTRIES": one.codes[table].size}
    return "lookup", {**sizes, "OFFSET": one.step.attrs_as(LookupAttrs).offset, **widths}


DIVIDES = LoweringRefusal("divides, which modules.sv has no check for")
COMPARES, MOVES = LoweringRefusal("only compares codes"), LoweringRefusal("only moves codes")
MOVED = ("reshape", "transpose", "slice", "concat", "pad", "take", "embedding")
# The check of each op; ops that are refused have vectors, but no module in the testbench.
LOWERINGS: Lowerings[Callable[[_Step], Check | None]] = Lowerings(
    "backends/vectors/bench",
    OPS,
    {
        **dict.fromkeys(("conv2d", "depthwise_conv2d", "matmul"), _sums),
        **dict.fromkeys(PAIRS, _pair),
        "clip": _clip,
        "requantize": _requantize,
        "lookup": _lookup,
    },
    {
        **dict.fromkeys(("max_pool", "reduce_max"), COMPARES),
        **dict.fromkeys(MOVED, MOVES),
        "batch_matmul": LoweringRefusal("multiplies two activations, of which vectors have none"),
        **dict.fromkeys(("standardize", "softmax"), DIVIDES),
    },
)
