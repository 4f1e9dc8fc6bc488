"""Damaged model files: loading ends soon, in little memory, with a graph or an error of ours."""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qgraph.errors import QGraphError
from qgraph.frontends.onnx import import_model, parse, read
from qgraph.ir.verify import verify
from tests.helpers.damage import chained, damaged_onnx, flipped, onnx_cases

# kind: how many models, and how far apart their seeds are
SHORT = {"onnx": (150, 1), "giants": (12, 53), "attributes": (150, 37), "pb": (60, 1)}
LONG = {"onnx": 20_000, "giants": 225, "attributes": 4_560, "pb": 10_000}


def assert_survives(kind: str, first: int, count: int, seconds: int, step: int = 1) -> None:
    """Run in a separate process, because a crash or full memory would end the tests too."""
    command = [
        sys.executable,
        "-m",
        "tests.helpers.damage",
        kind,
        str(first),
        str(count),
        str(step),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    last = [line for line in done.stderr.splitlines() if line.startswith("seed")][-1:]
    assert done.returncode == 0, f"{last}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("kind", SHORT)
def test_damaged_files(kind):
    count, step = SHORT[kind]
    assert_survives(kind, 0, count, 300, step)


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", LONG)
def test_many_damaged_files(kind):
    assert_survives(kind, 10_000, LONG[kind], 6 * 3600)


MODELS, OPS = onnx_cases()
SMALL = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@SMALL
@given(random=st.randoms(use_true_random=False), count=st.integers(1, 3), bits=st.booleans())
def test_damaged_model_gives_a_graph_or_an_error(random, count, bits):
    model = damaged_onnx(chained(random.sample(MODELS, count), random), random, OPS)
    content = model.SerializeToString()
    found = parse(flipped(content, random) if bits else content)
    if found is None:
        return
    try:
        verify(import_model(read(found)))
    except QGraphError as error:
        assert error.message
