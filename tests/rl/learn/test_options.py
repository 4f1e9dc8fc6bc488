"""What a run is asked for that it would not do, and is refused."""

import inspect
import math
from dataclasses import fields

import pytest

from qgraph.cli.rl.train import train as command
from qgraph.cli.rl.train_options import settings_from
from qgraph.errors import UsageError
from qgraph.rl.learn.options import Options, options_for
from qgraph.rl.learn.runs import train
from qgraph.rl.learn.setting import settings_of
from qgraph.rl.monitor.log import LINES, read_log
from tests.helpers.cli import run as qgraph

pytest.importorskip("gymnasium", reason="needs the extra `rl`")
# 20 of its 400 steps are no whole batch but wait: the learner takes 19 steps.
STEPS = 19
GAP = {
    "in_process": True,
    "steps": 400,
    "hidden": (16,),
    "layer_norm": False,
    "batch": 20,
    "episodes": 1,
    "monitor_every": 1,
    "compress": "prune(0.5)",
    "monitor": "reward_gap:1000",  # more than CartPole's best
}


@pytest.mark.parametrize(
    ("algorithm", "said", "complaint"),
    [
        ("dqn", ("--entropy", "0.5"), "dqn has no use for --entropy\n  it is for impala"),
        ("dqn", ("--value", "3"), "dqn has no use for --value\n  it is for impala"),
        ("impala", ("--prioritized",), "impala has no use for --prioritized\n  it is for dqn"),
        ("dqn", ("--monitor-every", "3"), "a monitor watches compression, and there is none"),
        ("dqn", ("--compress", " "), "--compress names no link"),
        ("impala", ("--correct", "vtrace,"), "`vtrace,` is no list of correctors"),
    ],
)
def test_what_nothing_would_look_at_is_refused(tmp_path, algorithm, said, complaint):
    out = tmp_path / "run"
    found = qgraph("rl", "train", "--algo", algorithm, "--env", "CartPole-v1", "-o", out, *said)
    assert found.code == 2 and complaint in found.err
    assert not out.exists()


def test_what_algorithms_look_at_is_taken():
    for algorithm in ("dqn", "d4pg", "sac"):
        assert options_for(algorithm, "Any-v0", alpha=0.6).alpha == 0.6
    taken = options_for("impala", "Any-v0", entropy=0.5, value=3.0)
    assert (taken.entropy, taken.value) == (0.5, 3.0)


@pytest.mark.parametrize(
    "more",
    [
        {"evaluate_every": STEPS},
        {"evaluate_every": 15, "monitor_every": 5},  # the last look is after 15
        {"evaluate_every": 18, "publish_every": 6, "monitor_every": 3},
    ],
)
def test_a_gap_that_no_look_would_see_is_refused(tmp_path, more):
    with pytest.raises(UsageError, match=f"(?s)never see a gap: of {STEPS} .*--evaluate-every"):
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
    seen = [row.seen for row in read_log(run / LINES) if math.isfinite(row.seen.reward_gap)]
    assert len(seen) == 1


def test_a_run_by_the_gap_goes_on_for_a_while(tmp_path):
    """Without another evaluation: it stands where it stood."""
    train(tmp_path / "run", "impala", "CartPole-v1", {**GAP, "evaluate_every": 10})
    later = {"steps": 440, "evaluate_every": 1000}
    assert train(tmp_path / "run", settings=later, resume=True).done


def test_other_strategies_need_no_evaluation(tmp_path):
    settings = {**GAP, "compress": "quantize(8)", "evaluate_every": 1000}
    for monitor in ("kl_max:14", "mix:0.5", "growth", "watch", ""):
        train(tmp_path / monitor[:3], "impala", "CartPole-v1", {**settings, "monitor": monitor})


def test_every_field_is_a_setting_with_an_option():
    names = {name for name, _, _ in settings_of(Options)}
    assert names == {part.name for part in fields(Options)} - {"algorithm", "environment"}
    parameters = inspect.signature(command).parameters
    without = {"precision", "methods"}  # by --half
    for name, _, declared in settings_of(Options):
        parameter = declared.parameter or name
        assert (parameter in parameters) == (name not in without), name
        assert len(declared.text) > 5 and declared.text.endswith(".")


def test_options_reach_the_setting_of_their_name():
    given = {
        "critic": "8,4", "gamma": 0.9, "capacity": 70, "atoms": 7, "least": 60, "tau": 0.1,
        "value_limit": 3.0, "target_period": 5, "explore": 0.3, "sync": True, "pull": None,
        "mixed_bfloat16": False, "hidden": None,
    }  # fmt: skip
    wanted = {**given, "critic": (8, 4), "synchronous": True, "half": False}
    for name in ("sync", "pull", "mixed_bfloat16", "hidden"):
        del wanted[name]
    assert settings_from(given) == wanted
    del wanted["tau"]
    found = options_for("d4pg", "Any-v0", steps=100, **wanted)
    assert {name: getattr(found, name) for name in wanted} == wanted


NONSENSE = [
    ("impala", {"reward_scale": 0.0}), ("impala", {"reward_scale": -1.0}),
    ("impala", {"reward_scale": math.inf}), ("impala", {"reward_scale": math.nan}),
    ("impala", {"entropy": -1.0}), ("impala", {"value": -0.1}), ("impala", {"entropy": math.nan}),
    ("dqn", {"gamma": 1.01}), ("dqn", {"gamma": -0.1}), ("dqn", {"gamma": math.nan}),
    ("dqn", {"rate": 0.0}), ("dqn", {"rate": -1e-4}), ("dqn", {"spi": 0.0}),
    ("dqn", {"explore": 1.5}), ("dqn", {"explore_steps": -1}), ("dqn", {"explore_hold": 0}),
    ("dqn", {"alpha": -0.1}), ("dqn", {"alpha": 2.0}), ("dqn", {"reward_clip": -1.0}),
    ("dqn", {"hidden": (16, 0)}), ("dqn", {"hidden": (16, -4)}), ("dqn", {"seed": -1}),
    ("dqn", {"steps": 0}), ("dqn", {"actors": 0}), ("dqn", {"nodes": 0}), ("dqn", {"batch": 0}),
    ("dqn", {"episodes": 0}), ("dqn", {"evaluate_every": 0}), ("dqn", {"publish_every": 0}),
    ("dqn", {"target_period": 0}), ("dqn", {"capacity": 0}), ("dqn", {"least": 0}),
    ("dqn", {"actor_bits": 9}), ("dqn", {"first_bits": 1}), ("dqn", {"last_bits": True}),
    ("d4pg", {"atoms": 1}), ("d4pg", {"value_limit": 0.0}), ("d4pg", {"critic": (0,)}),
    ("d4pg", {"value_limit": math.inf}), ("sac", {"tau": 0.0}), ("sac", {"tau": 1.5}),
    ("sac", {"significand": 11}), ("sac", {"precision": "float8"}),
    # of another type
    ("dqn", {"steps": 2000.5}), ("dqn", {"steps": "2000"}), ("dqn", {"double": 1}),
    ("dqn", {"hidden": 16}), ("dqn", {"rate": "fast"}), ("dqn", {"batch": True}),
    # of another algorithm
    ("dqn", {"critic": (8,)}), ("dqn", {"atoms": 5}), ("impala", {"capacity": 10}),
    ("impala", {"explore": 0.3}), ("sac", {"explore_steps": 5}), ("impala", {"target_period": 3}),
    ("sac", {"value_limit": 3.0}), ("d4pg", {"tau": 0.1}), ("dqn", {"correct": "vtrace"}),
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "given"), NONSENSE, ids=str)
def test_nonsense_is_refused_by_name(algorithm, given):
    ((name, _),) = given.items()
    with pytest.raises(UsageError) as caught:
        options_for(algorithm, "CartPole-v1", **given)
    assert name.replace("_", "-") in str(caught.value) or "precision" in str(caught.value)


def test_the_command_refuses_it_too(tmp_path):
    out = tmp_path / "run"
    for said in (("--reward-scale", "0"), ("--hidden", "0"), ("--alpha", "nan")):
        found = qgraph("rl", "train", "--algo", "sac", "--env", "Pendulum-v1", "-o", out, *said)
        assert found.code == 2 and said[0] in found.err
    both = ("--prioritized", "--alpha", "0.5")
    found = qgraph("rl", "train", "--algo", "dqn", "--env", "CartPole-v1", "-o", out, *both)
    assert found.code == 2 and "--alpha" in found.err and not out.exists()


def test_unknown_settings_are_refused_with_near_names(tmp_path):
    with pytest.raises(UsageError, match="unknown setting `gama`") as caught:
        options_for("dqn", "CartPole-v1", gama=0.9)
    assert "gamma" in caught.value.hint
    with pytest.raises(UsageError, match="unknown setting `reward`"):
        train(tmp_path / "run", "dqn", "CartPole-v1", {"reward": 1})


def test_rewards_of_games_are_clipped_for_the_learner():
    for algorithm in ("dqn", "impala"):
        assert options_for(algorithm, "ALE/Pong-v5").reward_clip == 1
        assert options_for(algorithm, "CartPole-v1").reward_clip == 0
    assert options_for("dqn", "ALE/Pong-v5", reward_clip=0.0).reward_clip == 0
