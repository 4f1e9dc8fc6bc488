"""Layers whose instructions are counted on 64-bit Arm: the codes that both programs must give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.aarch64.layer_networks import LayerShape, written
from qgraph import kernels
from qgraph.backends.engine import Engine
from tests.helpers.forms import needs_tool

SHAPES = (
    LayerShape(6, 3, 8, kernel=3, stride=2),
    LayerShape(5, 8, 8, kernel=3, depthwise=True),
    LayerShape(1, 24, 39),
)


@needs_tool("tflite")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_files_of_a_layer_give_the_same_codes(shape: LayerShape, tmp_path: Path) -> None:
    from benchmarks.aarch64 import litert_runs

    files = written(shape, tmp_path)
    assert len(np.unique(files.expected)) > 9
    litert_runs.run(tmp_path, 1)
    np.testing.assert_array_equal(files.by_litert, files.expected)
    if kernels.native_engine() is None:
        pytest.skip("the native extension is not built")
    engine = Engine.open(tmp_path / "network.qgi")
    codes = np.frombuffer((tmp_path / "input.bin").read_bytes(), np.uint8)
    (found,) = engine.run_codes({"x": codes.reshape(1, *_input_shape(shape))}).values()
    np.testing.assert_array_equal(found, files.expected)


def _input_shape(shape: LayerShape) -> tuple[int, ...]:
    square = (shape.side, shape.side) if shape.side > 1 else ()
    return (*square, shape.channels)
