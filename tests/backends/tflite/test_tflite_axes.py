"""Moves of tensors with many axes: TFLM slices four, so that tensors get fewer axes before."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytest.importorskip("tflite", reason="pip install 'qgraph-compiler[tflite]'")
pytest.importorskip("ai_edge_litert", reason="pip install 'qgraph-compiler[tflite]'")
pytest.importorskip("tflite_micro", reason="pip install 'qgraph-compiler[tflite]'")

from qgraph.backends.tflite.executors import MOST_PRESERVED
from qgraph.backends.tflite.tflite_form import TfliteForm
from qgraph.ir.types import Rounding
from tests.helpers.forms import assert_form, network_of, random_codes
from tests.helpers.program_builder import ProgramBuilder

SPANS = {"int8": (-128, 127), "int16": (-32768, 32767)}
SHAPES = [(1, 3, 4, 2, 5), (1, 3, 2, 4, 2, 3)]


def start(span: tuple[int, int], shape: tuple[int, ...]) -> tuple[ProgramBuilder, str]:
    rounding = Rounding.HALF_EVEN if span[0] == -128 else Rounding.HALF_AWAY
    builder = ProgramBuilder()
    return builder, builder.entry(shape, span, "x", rounding=rounding)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize(
    "parts", [{1: (1, 2, 1)}, {1: (2, None, -1), 3: (None, -1, 1), 4: (1, None, 2)}]
)
def test_slices(shape, span, parts) -> None:
    builder, x = start(span, shape)
    every = [parts.get(axis, (None, None, 1)) for axis in range(len(shape))]
    begins = tuple((0 if s > 0 else -1) if b is None else b for b, _, s in every)
    builder.step("slice", x, begin=begins, end=tuple(e for _, e, _ in every),
                 strides=tuple(s for *_, s in every))  # fmt: skip
    assert_form(TfliteForm(), builder.program())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("axis", [1, 3, 4])
def test_concats_and_indices(shape, span, axis) -> None:
    builder, x = start(span, shape)
    y = builder.step("concat", x, x, axis=axis)
    builder.step("take", y, axis=axis, indices=(2, 0, 0))
    assert_form(TfliteForm(), builder.program())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_pads(shape, span) -> None:
    builder, x = start(span, shape)
    paddings = [(0, 0)] * len(shape)
    paddings[1], paddings[4] = (1, 0), (0, 2)
    builder.step("pad", x, paddings=tuple(paddings))
    assert_form(TfliteForm(), builder.program())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_choices(shape, span, op) -> None:
    builder, x = start(span, shape)
    builder.step(op, x, builder.step("transpose", x, perm=tuple(range(len(shape)))))
    assert_form(TfliteForm(), builder.program())


def test_more_tensors_than_tflm_preserves() -> None:
    """All tensors are compared in both executors, in TFLM by a copy whose outputs they are."""
    builder, x = start(SPANS["int16"], (1, 4))
    for i in range(MOST_PRESERVED + 50):
        x = builder.step("reshape", x, shape=(1, 2, 2) if i % 2 else (1, 4, 1))
    network = network_of(builder.program())
    with TemporaryDirectory() as folder:
        TfliteForm().write(network, Path(folder))
        runners = TfliteForm().runners(network, Path(folder))
        found = {name: run(random_codes(network.program)) for name, run in runners.items()}
    assert {len(codes) > MOST_PRESERVED for codes in found.values()} == {True}
    assert_form(TfliteForm(), network.program)
