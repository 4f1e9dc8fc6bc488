"""`qgraph rl train`, ended before there is much to tell of."""

import os
import signal

import pytest

from qgraph.rl.learn.training import Training
from qgraph.rl.monitor.log import LINES
from tests.helpers.cli import run as qgraph

pytest.importorskip("gymnasium", reason="needs the extra `rl`")


def test_ctrl_c_before_a_policy_is_compressed_leaves_a_run_that_goes_on(tmp_path, monkeypatch):
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
    shown = [line.rstrip().split(maxsplit=1) for line in stopped.out.splitlines()]
    assert ["compression", "no policy was compressed yet"] in shown
    assert shown[-1] == ["stopped;", f"go on with: qgraph rl train --resume --out {out}"]
    assert qgraph("rl", "train", "--resume", "--out", out).code == 0
