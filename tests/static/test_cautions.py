"""When a result is warned of, and when it is not."""

import numpy as np
import pytest

import qgraph
from qgraph.exact.compare import Measured
from qgraph.ir.graph import Graph
from qgraph.quant.plan import Plan
from qgraph.static.agreement import LEVELS, Agreement, level_of
from qgraph.static.cautions import CLIPPED, FEW_SAMPLES, of_evidence, of_result

RNG = np.random.default_rng(0)
NOTHING = Measured(0, {}, {}, {})


@pytest.mark.parametrize("count", [1, 2, FEW_SAMPLES - 1, FEW_SAMPLES, 1000])
def test_fewer_than_sixteen_samples_are_warned_of(count):
    found = of_evidence(count)
    assert bool(found) == (count < 16)
    assert all(text.startswith(f"only {count} sample") for text in found)


@pytest.mark.parametrize(
    ("sqnr", "top1", "samples", "level"),
    [
        (45.0, 1.0, 16, 0), (41, None, 16, 0), (30, 0.97, 16, 1), (16, 0.8, 16, 2),
        (14.9, 1.0, 16, 3), (-2, None, 16, 3), (36, 0.1, 16, 3), (12, 0.99, 1000, 0),
        (12, 0.85, 60, 2), (40, 0.7, 60, 3),
        (float("-inf"), None, 1, 3), (float("inf"), 1.0, 1, 0), (float("nan"), None, 1, 3),
    ],
)  # fmt: skip
def test_levels(sqnr, top1, samples, level):
    assert level_of(sqnr, top1, samples) == level
    found = of_result(Graph("none"), Agreement(sqnr, top1, samples), NOTHING)
    assert bool(found) == (level == len(LEVELS))
    assert not of_result(Graph("none"), None, NOTHING)


@pytest.mark.parametrize(
    ("sqnr", "top1", "warned"),
    [(-1.1, 1.0, False), (-1.1, 0.8, False), (-1.1, 0.79, True), (-1.1, None, True),
     (20.0, None, False)],
)  # fmt: skip
def test_outputs_that_training_moved_are_judged_by_their_decisions(sqnr, top1, warned):
    found = of_result(Graph("none"), Agreement(sqnr, top1, 16), NOTHING, trained=True)
    assert bool(found) == warned
    assert all("qgraph evaluate" in text for text in found)


def clipping(loud: float, count: int) -> list[str]:
    """Warnings where `count` of 1,000 numbers are `loud` in the samples of the report alone."""
    g = Graph("net")
    x = g.input("x", "float32", (None, 1000))
    g.outputs["y"] = g.add("matmul", x, g.const(np.eye(1000, 4, dtype=np.float32), "w"))
    data = RNG.uniform(-0.99, 0.99, (64, 1000)).astype(np.float32)
    data[-16:, 4 : 4 + count] = loud
    made = qgraph.quantize(g, {"x": data}, effort="fast", budget=0)
    return [w for w in made.facts.warnings if w.startswith("many values are clipped")]


def test_what_clips_more_than_a_hundredth_is_named():
    assert not clipping(5.0, int(CLIPPED * 1000))
    (text,) = clipping(5.0, 11)
    assert text.endswith("`x/q8` clips 1.1 % (it holds -1 to 0.9922)")


def test_what_moves_by_less_than_a_step_is_not_clipped():
    assert not clipping(0.999, 900)


def test_constants_may_be_clipped_by_design():
    """Thresholds of three deviations, to be trained from there, clip weights."""
    g = Graph("net")
    w = np.full((64, 8), 0.01, np.float32)
    w[0] = 1.0
    g.outputs["y"] = g.add("matmul", g.input("x", "float32", (None, 64)), g.const(w, "w"))
    made = qgraph.quantize(
        g, {"x": RNG.normal(size=(32, 64)).astype("f")}, plan=Plan(weights="3sd")
    )
    found = made.measured.statistics["w/q8"]
    assert found.above + found.below > CLIPPED * found.elements
    assert not any("clipped" in w for w in made.facts.warnings)
