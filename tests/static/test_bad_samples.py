"""Few samples, odd samples, odd weights: what comes out is defined, and exact to the bit."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import qgraph
from qgraph.choices import Effort
from qgraph.errors import ExactnessError
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from tests.helpers.cli import run, small_network, typical_images
from tests.helpers.layers import WINDOW
from tests.helpers.quantized import assert_tf_equals_reference, exact

RNG = np.random.default_rng(4)
LAYERS = ("conv0", "conv1", "dw", "fc")


def network(channels: int = 4, zeros: tuple[str, ...] = (), batch: int | None = None) -> Graph:
    """Two convolutions with batch norms, a depthwise one, a head; weights in `zeros` are 0."""
    g, rng = Graph("net"), np.random.default_rng(0)

    def const(name: str, *shape: int, low: float = -1.0) -> str:
        value = rng.uniform(low, 1, shape) * (name not in zeros)
        return g.const(value.astype(np.float32), f"{name}_weights")

    inputs = min(channels, 3)
    x = g.input("x", "float32", (batch, 5, 5, inputs))
    for name in ("conv0", "conv1"):
        x = g.add("conv2d", x, const(name, 3, 3, inputs, channels), name=name, attrs=WINDOW)
        norms = [const(k, channels) for k in ("gamma", "beta", "mean")]
        variance = const("variance", channels, low=0.5)
        x = g.add("batch_norm", x, *norms, variance, attrs={"epsilon": 1e-3})
        x, inputs = g.add("relu", x), channels
    x = g.add("depthwise_conv2d", x, const("dw", 3, 3, channels, 1), name="dw", attrs=WINDOW)
    x = g.add("mean", x, attrs={"axes": (1, 2), "keepdims": False})
    x = g.add("matmul", x, const("fc", channels, 3), name="fc")
    g.outputs["y"] = g.add("softmax", g.add("bias_add", x, const("bias", 3)))
    return g


def normal(count: int, channels: int = 3) -> np.ndarray:
    return RNG.normal(size=(count, 5, 5, channels)).astype(np.float32)


CASES = {
    "one sample": (network(), normal(1)),
    "one sample too few to split": (network(), normal(7)),
    "just enough to split": (network(), normal(8)),
    "one channel": (network(channels=1), normal(12, 1)),
    "one channel, one sample": (network(channels=1), normal(1, 1)),
    **{f"no weights in {name}": (network(zeros=(name,)), normal(12)) for name in LAYERS},
    "no weights at all": (network(zeros=LAYERS), normal(12)),
    "no weights, no biases, one sample": (network(zeros=(*LAYERS, "beta", "bias")), normal(1)),
    "one number everywhere": (network(), np.full_like(normal(12), 0.7)),
    "one negative number everywhere": (network(), np.full_like(normal(12), -1.5)),
    "the same sample again": (network(), np.repeat(normal(1), 12, axis=0)),
    "one batch": (network(batch=4), normal(4)),
    "two batches": (network(batch=4), normal(8)),
    "batches that the parts have to keep whole": (network(batch=3), normal(18)),
    "batches larger than what is measured": (network(batch=100), normal(200)),
    "batches of one": (network(batch=1), normal(9)),
    "huge numbers": (network(), normal(12) * np.float32(1e30)),
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("effort", Effort)
@pytest.mark.parametrize("case", CASES)
def test_the_result_is_defined_and_exact(case: str, effort: str) -> None:
    graph, data = CASES[case]
    result = qgraph.quantize(graph, data, effort=effort)
    batch = graph.types["x"].shape[0] or 2
    feeds = {"x": data[:batch]}
    assert assert_tf_equals_reference(result.graph, feeds) > 5
    scores = exact(Reference(result.graph).run(feeds)[result.graph.outputs["y"]])
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores.sum(axis=-1), 1, rtol=1e-5)
    found = result.facts.agreement
    assert not math.isnan(found.measured.sqnr) and 0 <= found.top1 <= 1
    assert found.held_out == (effort != "plain" and len(data) >= 8 and batch < 4)


@pytest.mark.parametrize("effort", Effort)
@pytest.mark.parametrize("count", [1, 8, 40])
def test_a_budget_of_nothing_is_the_first_plan(effort: str, count: int) -> None:
    data = normal(count)
    result = qgraph.quantize(network(), data, effort=effort, budget=0)
    plain = qgraph.quantize(network(), data, plan=result.facts.choice.plan_spec, effort="plain")
    assert len(result.facts.choice.trials) == (effort != "plain")
    assert result.facts.choice.plan == plain.facts.choice.plan


@pytest.mark.parametrize("effort", Effort)
def test_numbers_too_small_for_any_scale_are_refused(effort: str) -> None:
    with pytest.raises(ExactnessError, match=r"conv0/q16: .*(shift|outside)"):
        qgraph.quantize(network(), normal(12) * np.float32(1e-30), effort=effort)


# -- the command line --------------------------------------------------------------------------


@pytest.mark.parametrize("effort", Effort)
@pytest.mark.parametrize("count", [1, 8])
def test_few_samples_on_the_command_line(tmp_path, effort: str, count: int) -> None:
    (tmp_path / "net.pb").write_bytes(small_network().SerializeToString())
    np.save(tmp_path / "x.npy", typical_images(count))
    arguments = (tmp_path / "net.pb", "-c", tmp_path / "x.npy", "-o", tmp_path / "out")
    done = run("quantize", *arguments, "--effort", effort, "--budget", 0)
    assert done.code == 0, done.err
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["agreement"]["held_out"] == (effort != "plain" and count >= 8)
    done = run("report", tmp_path / "out")
    assert done.code == 0 and "Traceback" not in done.err


def test_a_network_of_zeros_on_the_command_line(tmp_path) -> None:
    made = small_network()
    for node in made.node:
        if node.op == "Const" and node.attr["value"].tensor.dtype == 1:
            value = node.attr["value"].tensor
            value.tensor_content = bytes(len(value.tensor_content))
    (tmp_path / "net.pb").write_bytes(made.SerializeToString())
    np.save(tmp_path / "x.npy", typical_images(9))
    arguments = (tmp_path / "net.pb", "-c", tmp_path / "x.npy", "-o", tmp_path / "out")
    done = run("quantize", *arguments, "--effort", "fast")
    assert done.code == 0, done.err
    for verb in ("inspect", "report"):
        found = run(verb, tmp_path / "out")
        assert found.code == 0 and "nan" not in found.out, found.err
