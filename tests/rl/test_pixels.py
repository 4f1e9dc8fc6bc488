"""dm_control's tasks as images."""

import json
import os
import subprocess
import sys

import pytest

from qgraph.errors import UsageError
from qgraph.rl.environments.dm_control import DmControlPixels

PLAY = """
import json
import numpy as np
from qgraph.errors import UsageError
from qgraph.rl.environments import make
try:
    environment = make("dm_control:cartpole-swingup:pixels")
except UsageError as error:
    print(json.dumps({"error": str(error)}))
    raise SystemExit
first, same = environment.reset(3).copy(), environment.reset(3)
outcomes = [environment.step([1.0]) for _ in range(125)]
image = outcomes[0].observation
environment.close()
print(json.dumps({
    "seeded": bool((first == same).all()),
    "shape": image.shape, "dtype": str(image.dtype), "mean": float(first.mean()),
    "followed": bool((outcomes[1].observation[..., :6] == outcomes[0].observation[..., 3:]).all()),
    "moved": bool((image[..., 6:] != image[..., 3:6]).any()),
    "over": [outcome.over for outcome in outcomes],
    "rewards": [outcome.reward for outcome in outcomes],
}))
"""
TRAIN = """
import sys
from pathlib import Path
import numpy as np
from qgraph.rl.agents.former_names import half_settings
from qgraph.rl.learn.runs import train
small = {
    "in_process": True, "steps": 46, "hidden_sizes": (16,), "critic_hidden_sizes": (16,),
    "min_replay_size": 40, "batch_size": 8,
    "samples_per_insert": 8.0, "evaluate_every": 1000, "episodes": 1, "replay_capacity": 200,
}
name = "dm_control:cartpole-swingup:pixels"
training = train(Path(sys.argv[1]), "sac", name, {**small, **half_settings("all")})
assert training.done and training.counts.learner_steps == 6
assert all(np.isfinite(v.numpy()).all() for v in training.learner.state.values())
"""


def python(text, *arguments, draws="osmesa"):
    pytest.importorskip("dm_control", reason="needs the extra `rl`")
    return subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)],
        env={**os.environ, "MUJOCO_GL": draws},
        capture_output=True,
        text=True,
        check=False,
    )


def played(**how):
    done = python(PLAY, **how)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def drawn():
    found = played()
    if "error" in found:
        assert "cannot be drawn with MUJOCO_GL=osmesa" in found["error"]
        pytest.skip("libosmesa6 is not installed")
    return found


def test_images_of_a_task():
    found = drawn()
    assert found["shape"] == [84, 84, 9] and found["dtype"] == "uint8"
    assert found["seeded"] and found["followed"] and found["moved"] and 20 < found["mean"] < 235
    # An episode of 1,000 steps, each action held for 8 of them, whose rewards are added.
    assert found["over"] == [False] * 124 + [True]
    assert 0 < max(found["rewards"]) <= 8


def test_learning_from_images_in_float16(tmp_path):
    drawn()
    done = python(TRAIN, tmp_path / "run")
    assert done.returncode == 0, done.stderr


def test_a_missing_library_is_reported(monkeypatch):
    """As dm_control is imported, with what draws, where libosmesa6 is not installed."""
    pytest.importorskip("dm_control", reason="needs the extra `rl`")

    def import_module(name):
        raise AttributeError("'NoneType' object has no attribute 'glGetError'")

    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    monkeypatch.setattr("importlib.import_module", import_module)
    with pytest.raises(UsageError, match="cannot be drawn with MUJOCO_GL=osmesa") as caught:
        DmControlPixels("dm_control:cartpole-swingup:pixels")
    assert "libosmesa6" in caught.value.hint


def test_figures_that_cannot_be_drawn_are_reported():
    error = played(draws="disable")["error"]
    assert "cannot be drawn" in error and "MUJOCO_GL=osmesa" in error
