"""Moves and tables of int16 codes in `.tflite` files, for which TFLM lacks operators."""

import numpy as np
import pytest

from qgraph.backends.tflite.arithmetic import TFLM_INT16X8, WORDS
from qgraph.backends.tflite.slices import runs_of, unrepeated
from qgraph.backends.tflite.tflite_form import TfliteForm
from qgraph.ir.types import Rounding
from tests.helpers.forms import assert_form, network_of, refused
from tests.helpers.program_builder import ProgramBuilder
from tests.helpers.tflite_programs import assert_tflite, wide_entry

for package in ("tflite", "ai_edge_litert", "tflite_micro"):
    pytest.importorskip(package, reason="pip install 'qgraph-compiler[tflite]'")

REPEATED = [(0, 0, 1, 1, 2, 2, 3, 3, 4, 4), (0, 0, 0), (2, 2, 0, 0)]
OTHERS = [
    (4, 3, 2, 1, 0),
    (4, 2),
    (3, 2, 1, 0, 1, 2, 3, 4, 3, 2),
    (0, 2, 4),
    (1,),
    (3, 1, 4, 1, 1),
    (0, 1, 2, 3, 4),
    (0, 2, 1),
]


@pytest.mark.parametrize("indices", [*REPEATED, *OTHERS], ids=str)
def test_indices_are_slices_and_repetitions(indices) -> None:
    once, times = unrepeated(indices)
    assert [i for i in once for _ in range(times)] == [*indices]
    assert (times > 1) == (indices in REPEATED)
    assert [i for run in runs_of(indices) for i in run] == [*indices]
    builder = ProgramBuilder()
    x = wide_entry(builder, 1, 5, 5, 3)
    for axis in (1, 2):
        builder.step("take", x, axis=axis, indices=indices)
    assert_tflite(builder.program())


def test_more_indices_than_tflm_joins() -> None:
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    x = wide_entry(builder, 1, 2, 3, 7)
    builder.step("take", x, axis=3, indices=tuple(rng.integers(0, 7, 130).tolist()))
    builder.step("take", x, axis=2, indices=(1,) * 13)
    assert_tflite(builder.program())


@pytest.mark.parametrize("axes", [(1,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)], ids=str)
def test_maxima_are_pools(axes) -> None:
    builder = ProgramBuilder()
    x = wide_entry(builder, 1, 5, 7, 3)
    for kept in (True, False):
        builder.step("reduce_max", x, axes=axes, keepdims=kept)
    assert_tflite(builder.program())


@pytest.mark.parametrize("span", [WORDS.ends, (-128, 127), (0, 32767)], ids=str)
def test_tables_have_an_entry_for_each_code(span) -> None:
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    table = rng.integers(*WORDS.ends, span[1] - span[0] + 1, endpoint=True)
    table[:2] = WORDS.ends
    builder.step("lookup", wide_entry(builder, 1, 9, 9, 3, span=span), builder.constant(table),
                 offset=span[0])  # fmt: skip
    assert_tflite(builder.program())


def test_rows_of_a_table_and_other_moves() -> None:
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    rows = builder.constant(rng.integers(*WORDS.ends, (256, 5), endpoint=True))
    builder.step("embedding", wide_entry(builder, 1, 4, span=(0, 255)), rows)
    x = wide_entry(builder, 1, 4, 6, 2)
    builder.step("max_pool", x, ksize=(3, 3), strides=(2, 2), pads=((1, 0), (1, 1)))
    builder.step("pad", x, paddings=((0, 0), (1, 0), (0, 2), (0, 0)))
    builder.step("transpose", x, perm=(0, 3, 1, 2))
    builder.step("slice", x, begin=(0, 1, 0, 0), end=(None,) * 4, strides=(1, 2, 1, 1))
    builder.step("abs", wide_entry(builder, 1, 9, span=(-32767, 32767)))
    assert_tflite(builder.program())


@pytest.mark.parametrize("profile", ["litert", "tflm", "tflm-int16x8"])
def test_a_concat_of_many_tensors(profile: str) -> None:
    """TFLM joins ten."""
    span = WORDS.ends if profile == TFLM_INT16X8.name else (-128, 127)
    rounding = Rounding.HALF_EVEN if profile == "litert" else Rounding.HALF_AWAY
    builder = ProgramBuilder()
    names = [builder.entry((1, 2, 3), span, f"x{i}", rounding=rounding) for i in range(23)]
    builder.step("concat", *names, axis=2)
    assert_form(TfliteForm(), builder.program())


def test_too_many_slices_are_refused() -> None:
    builder, order = ProgramBuilder(), np.random.default_rng(0).permutation(999)
    builder.step(
        "take", wide_entry(builder, 1, 999), name="mixed", axis=1, indices=(*order.tolist(),)
    )
    found = refused(TfliteForm(), network_of(builder.program()))
    assert found is not None and "mixed: picks 999 indices" in found
