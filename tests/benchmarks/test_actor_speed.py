"""All contestants run the same network."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.actor_speed import NETWORKS, keras_model, observations, onnx_model, torch_model
from benchmarks.broadcast.policies import drawn_weights
from qgraph.rl.actor import Actor, Packer


def expected(name):
    program = NETWORKS[name]()
    weights, x = drawn_weights(program), observations(program, 3)
    return program, weights, x, Actor(Packer(program, 32).pack(weights))(x)


@pytest.mark.parametrize("name", ["2x64", "Nature CNN"])
def test_keras_computes_the_same(name):
    program, weights, x, y = expected(name)
    assert keras_model(program, weights)(x).numpy() == pytest.approx(y, rel=1e-4, abs=1e-4)


def test_onnx_computes_the_same():
    runtime = pytest.importorskip("onnxruntime")
    program, weights, x, y = expected("2x64")
    session = runtime.InferenceSession(
        onnx_model(program, weights), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {program.observation: x})
    assert found == pytest.approx(y, abs=1e-5)


def test_torch_computes_the_same():
    torch = pytest.importorskip("torch")
    program, weights, x, y = expected("2x64")
    with torch.inference_mode():
        found = torch_model(program, weights)(torch.from_numpy(x)).numpy()
    assert found == pytest.approx(y, abs=1e-5)
    cnn = NETWORKS["Nature CNN"]()
    image = np.zeros((1, 4, 84, 84), np.float32)
    assert torch_model(cnn, drawn_weights(cnn))(torch.from_numpy(image)).shape == (1, 18)
