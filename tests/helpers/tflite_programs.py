"""Programs that are compared as `.tflite` files of int16 codes."""

from __future__ import annotations

from qgraph.backends.tflite.arithmetic import WORDS
from qgraph.backends.tflite.tflite_form import TfliteForm
from qgraph.ir.types import Rounding
from qgraph.program import Program
from tests.helpers.forms import assert_form
from tests.helpers.program_builder import ProgramBuilder


def wide_entry(
    builder: ProgramBuilder,
    *shape: int,
    name: str | None = None,
    span: tuple[int, int] = WORDS.ends,
) -> str:
    """An entry of int16 codes, from floats as TFLM rounds them."""
    return builder.entry(shape, span, name, rounding=Rounding.HALF_AWAY)


def assert_tflite(program: Program) -> None:
    """Compare all tensors of a program in a `.tflite` file, from floats and from codes."""
    for form in (TfliteForm(), TfliteForm(codes=True)):
        assert assert_form(form, program)
