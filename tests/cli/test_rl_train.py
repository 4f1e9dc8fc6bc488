"""`qgraph rl train`, ended before there is much to tell of."""

import os
import signal

import pytest
import tensorflow as tf

from qgraph.rl.agents.impala.config import ImpalaConfig
from qgraph.rl.learn.training import Training
from qgraph.rl.monitor.log import LINES
from tests.helpers.cli import run as qgraph

pytest.importorskip("gymnasium", reason="needs the extra `rl`")


def test_ctrl_c_before_the_first_compression_leaves_a_run_that_continues(tmp_path, monkeypatch):
    """With a slow compressor there is an evaluation by then, but no log yet."""
    report, out = Training._report, tmp_path / "run"

    def reported(self, actors, watch):
        report(self, actors, watch)
        (out / LINES).unlink()
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "_report", reported)
        stopped = qgraph(
            "rl", "train", "--algo", "impala", "--env", "CartPole-v1", "--steps", "400",
            "--batch", "20", "--hidden", "16", "--in-process", "--evaluate-every", "5",
            "--episodes", "1", "--compress", "quantize(8)", "--out", out,
        )  # fmt: skip
    assert stopped.code == 130, stopped.err
    assert f"to continue: qgraph rl train --resume --out {out}" in stopped.err
    assert "interrupted; a checkpoint is kept" in stopped.err
    shown = [line.rstrip().split(maxsplit=1) for line in stopped.out.splitlines()]
    assert ["compression", "no policy was compressed yet"] in shown
    assert shown[-1] == ["written", f"to {out}"]
    assert qgraph("rl", "train", "--resume", "--out", out).code == 0


def test_an_unknown_environment_is_found_before_too_few_steps(tmp_path):
    given = ("--algo", "dqn", "--steps", "10", "--out", tmp_path / "run")
    wrong = qgraph("rl", "train", *given, "--env", "CartPole-v7")
    assert wrong.code == 2 and "unknown environment `CartPole-v7`" in wrong.err
    few = qgraph("rl", "train", *given, "--env", "CartPole-v1")
    assert few.code == 2 and "--steps 10 is too few" in few.err
    assert not (tmp_path / "run").exists()


def test_replicas_without_a_gpu_are_warned_of(tmp_path, monkeypatch):
    """Before the run and in its summary."""
    monkeypatch.setattr("qgraph.train.replicas.gpu_count", lambda: 0)
    monkeypatch.setattr("qgraph.rl.agents.impala.config.ImpalaConfig.prepare", lambda self: None)
    alone = tf.distribute.get_strategy()
    monkeypatch.setattr("qgraph.rl.agents.impala.learner.strategy_of", lambda count: alone)
    done = qgraph(
        "rl", "train", "--algo", "impala", "--env", "CartPole-v1", "--steps", "60",
        "--batch", "20", "--hidden", "16", "--in-process", "--episodes", "1", "--replicas", "2",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.code == 0, done.err
    caution = "warning: 2 replicas without a GPU share the processor"
    assert done.err.startswith(caution) and caution in done.out
    assert ImpalaConfig.for_task("CartPole-v1").warnings() == []
