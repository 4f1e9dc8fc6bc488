"""`--device` of a learner."""

from __future__ import annotations

import pytest
import tensorflow as tf

from qgraph.errors import UsageError
from qgraph.rl.learn.runs import use_device
from tests.helpers.cli import run

pytestmark = pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="there is a GPU"
)


def test_a_gpu_run_without_a_gpu_is_refused(tmp_path) -> None:
    done = run(
        "rl", "train", "--algo", "dqn", "--env", "CartPole-v1", "--device", "gpu",
        "-o", tmp_path / "run",
    )  # fmt: skip
    assert done.code == 2 and "TensorFlow sees no GPU" in done.err
    assert not (tmp_path / "run").exists()
    done = run("rl", "train", "--device", "tpu")
    assert done.code == 2 and "unknown device `tpu`; choose cpu or gpu" in done.err


def test_the_cpu_is_chosen_and_nothing_else() -> None:
    use_device("cpu")
    assert tf.config.get_visible_devices("GPU") == []
    with pytest.raises(UsageError, match="unknown device"):
        use_device("CPU:0")


def test_gpus_are_hidden_before_tensorflow_starts(monkeypatch) -> None:
    hidden = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *given: hidden.append(given))
    use_device("cpu")
    use_device("gpu")
    assert hidden == [([], "GPU"), (["GPU:0"], "GPU")]

    def late(*given: object) -> None:
        raise RuntimeError("initialized")

    monkeypatch.setattr(tf.config, "set_visible_devices", late)
    with pytest.raises(UsageError, match="has started already"):
        use_device("cpu")
