"""An environment that needs no package, under two names, and a policy for it in a file."""

import pytest

from qgraph.errors import UsageError
from qgraph.rl import environments
from qgraph.rl.policy import play
from tests.helpers.playing import Chase, chaser_file


@pytest.fixture
def made(monkeypatch):
    """Environments that were made; `Chase` stands for a discrete one, `Pull` for the other."""
    found = []

    def make(name):
        if name not in ("Chase", "Pull"):
            raise UsageError(f"no environment is called `{name}`")
        found.append(Chase(name == "Chase"))
        return found[-1]

    monkeypatch.setattr(play, "make", make)
    monkeypatch.setattr(environments, "make", make)
    return found


@pytest.fixture
def model(tmp_path):
    """The policy as ONNX, which needs no TensorFlow."""
    return chaser_file(tmp_path / "chaser.onnx")


@pytest.fixture
def saved(tmp_path):
    """Writes an ONNX model, after a check that it is valid, and returns its path."""
    import onnx

    def save(model):
        onnx.checker.check_model(model)
        onnx.save(model, tmp_path / "policy.onnx")
        return tmp_path / "policy.onnx"

    return save
