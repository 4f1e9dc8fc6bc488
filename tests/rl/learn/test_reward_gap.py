"""A strategy by the reward gap needs an evaluation that a look of the monitor still sees."""

import math

import pytest

from qgraph.errors import UsageError
from qgraph.rl.learn.runs import train
from qgraph.rl.monitor.log import LINES, read_log

pytest.importorskip("gymnasium", reason="needs the extra `rl`")
# 20 of its 400 steps wait, less than a batch: the learner takes 19 steps.
STEPS = 19
GAP = {
    "in_process": True,
    "steps": 400,
    "hidden_sizes": (16,),
    "layer_norm": False,
    "batch_size": 20,
    "episodes": 1,
    "monitor_every": 1,
    "compress": "prune(0.5)",
    "monitor": "reward_gap:1000",  # more than CartPole's best
}


@pytest.mark.parametrize(
    "more",
    [
        {"evaluate_every": STEPS},
        {"evaluate_every": 15, "monitor_every": 5},  # the last look is after 15
        {"evaluate_every": 18, "publish_every": 6, "monitor_every": 3},
    ],
)
def test_a_gap_that_no_look_would_see_is_refused(tmp_path, more):
    with pytest.raises(UsageError, match=f"(?s)never see a gap: of {STEPS} .*evaluate_every"):
        train(tmp_path / "run", "impala", "CartPole-v1", {**GAP, **more})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "more",
    [
        {"evaluate_every": STEPS - 1},
        {"evaluate_every": 14, "monitor_every": 5},
        {"evaluate_every": 17, "publish_every": 6, "monitor_every": 3},
    ],
)
def test_a_gap_that_only_the_last_look_sees_is_taken(tmp_path, more):
    run = tmp_path / "run"
    training = train(run, "impala", "CartPole-v1", {**GAP, **more})
    assert training.counts.learner_steps == STEPS
    seen = [
        row.indicators for row in read_log(run / LINES) if math.isfinite(row.indicators.reward_gap)
    ]
    assert len(seen) == 1


def test_a_run_by_the_gap_continues_for_a_while(tmp_path):
    """Without another evaluation: it stands where it stood."""
    train(tmp_path / "run", "impala", "CartPole-v1", {**GAP, "evaluate_every": 10})
    later = {"steps": 440, "evaluate_every": 1000}
    assert train(tmp_path / "run", settings=later, resume=True).done


def test_other_strategies_need_no_evaluation(tmp_path):
    settings = {**GAP, "compress": "quantize(8)", "evaluate_every": 1000}
    for monitor in ("kl_max:14", "mix:0.5", "growth", "watch", ""):
        train(tmp_path / monitor[:3], "impala", "CartPole-v1", {**settings, "monitor": monitor})
