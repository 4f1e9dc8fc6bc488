"""How many operators a softmax and a layer norm take in a `.tflite` file, for the documentation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from qgraph.backends.tflite.arithmetic import ARITHMETICS, TfliteArithmetic
from qgraph.backends.tflite.tflite_form import TfliteForm
from qgraph.errors import UnsupportedError
from qgraph.frontends.tflite.model import read
from qgraph.quant.key_tables import BEGIN, END, markdown_table
from qgraph.tflite_schema import schema
from tests.helpers.forms import network_of
from tests.helpers.program_builder import ProgramBuilder

PAGE, NAME = Path(__file__).parents[2] / "docs/tflite.md", "operators of rows"
ROWS, COUNT = 6, 64
EPSILON = 1 << 20
ENTRIES = 200  # of the table of exponentials


def _norm(builder: ProgramBuilder, x: str, bits: int) -> None:
    guard = 25 - (COUNT << bits - 1).bit_length()
    shift = guard + bits - 1 - math.ceil(math.log2(math.sqrt(COUNT)) + 1)
    builder.step("standardize", x, guard=guard, epsilon=EPSILON, shift=max(shift, 0))


def _softmax(builder: ProgramBuilder, x: str, bits: int) -> None:
    table = np.rint(np.ldexp(np.exp(-np.arange(ENTRIES) * 8 / ENTRIES), 15)).astype(int)
    shares = bits - 1
    builder.step("softmax", x, builder.constant(table), bits=shares, high=(1 << shares) - 1)


STEPS: Mapping[str, Callable[[ProgramBuilder, str, int], None]] = {
    "layer norm": _norm,
    "softmax": _softmax,
}


def counts(arithmetic: TfliteArithmetic, step: str) -> tuple[int, int]:
    """Operators between codes, and those of them that work on all elements."""
    builder, stored = ProgramBuilder(), arithmetic.stored
    x = builder.entry((1, ROWS, COUNT), stored.ends, "x", rounding=arithmetic.inputs)
    STEPS[step](builder, x, stored.bits)
    network = read(TfliteForm(codes=True).emit(network_of(builder.program()))).network
    sizes = [math.prod(network.tensors[o.outputs[0]].shape) for o in network.operators]
    return len(sizes), sum(size > ROWS for size in sizes)


def table() -> str:
    """The table; the one of the page where packages to write files are not installed."""
    try:
        schema()
    except UnsupportedError:
        _, _, rest = PAGE.read_text("utf-8").partition(BEGIN.format(NAME) + "\n")
        return rest.partition(f"\n{END}")[0]
    rows = []
    for step in STEPS:
        for arithmetic in ARITHMETICS:
            every, wide = counts(arithmetic, step)
            rows.append((step, f"`{arithmetic.name}`", str(every), str(wide), str(every - wide)))
    names = ("step", "profile", "operators", "on all elements", "on one number for each row")
    return markdown_table(names, rows)


TABLES: Mapping[str, Callable[[], str]] = {NAME: table}
