"""Runs that train a policy in few bits: their files, their end, and how they continue."""

import json
from contextlib import closing

import numpy as np
import pytest

from qgraph.errors import LoadError, RunError
from qgraph.rl.agents import AGENTS, config_class
from qgraph.rl.learn.bits_phase import BitsPhase
from qgraph.rl.learn.runs import train
from qgraph.rl.policy import load_policy, read_policy
from qgraph.rl.policy.floats import run as run_float
from tests.helpers.cli import run as qgraph
from tests.helpers.runs import begun, resumed, rows, unwatched

pytest.importorskip("gymnasium", reason="needs the extra `rl`")
SMALL = {
    "in_process": True, "steps": 300, "hidden_sizes": (16, 16), "critic_hidden_sizes": (16,),
    "min_replay_size": 50, "batch_size": 20, "samples_per_insert": 4.0, "evaluate_every": 10,
    "episodes": 2, "train_bits": 3, "minibatch_size": 10,
}  # fmt: skip


def settings_of(algorithm, **more):
    fields = config_class(algorithm).fields()
    return {**{name: v for name, v in SMALL.items() if name in fields}, **more}


def task_of(algorithm):
    return "CartPole-v1" if config_class(algorithm).discrete_actions else "Pendulum-v1"


@pytest.mark.parametrize("algorithm", AGENTS)
def test_a_run_ends_in_a_static_policy_equal_to_what_was_trained(algorithm, tmp_path):
    run = tmp_path / "run"
    ended = train(run, algorithm, task_of(algorithm), settings_of(algorithm))
    learner, seen = ended.learner, ended.sample.observations()
    current = ended.policies.current(ended.counts.learner_steps)
    random = np.random.default_rng(0).normal(size=(200, *learner.program.shape)) * 3
    for x in (seen, random.astype(np.float32)):
        wanted = learner.bits.inference(learner.policy, x).numpy()
        assert np.array_equal(current.outputs(x), wanted)
    # The files are of the best evaluation.
    written, about = load_policy(run / "policy.qpol"), json.loads((run / "policy.json").read_text())
    assert (written.form, written.bits, written.head) == ("static", 3, learner.head)
    assert about["learner_steps"] == written.about["learner_steps"] > 0
    assert about["return_mean"] == ended.counts.best
    found = [row for row in rows(run / "progress.csv") if int(row["actor_steps"]) >= 150]
    assert max(float(row["return_mean"]) for row in found) == ended.counts.best
    floats = read_policy(run / "policy.pb")
    (name,) = floats.program.outputs
    near = run_float(floats.program, floats.weights, seen)[name]
    span = np.abs(near).max()
    assert np.abs(near - written.outputs(seen)).mean() < 0.2 * span  # activations have 8 bits


def test_actors_get_codes_from_the_delay_on(tmp_path):
    ended = train(tmp_path, "dqn", "CartPole-v1", settings_of("dqn", train_bits_delay=200))
    sent = ended.bits.weights()
    assert {name: v.tolist() for name, v in sent.items()} == {
        name: v.tolist() for name, v in ended.learner.bits.rounded(ended.learner.policy).items()
    }
    assert len(np.unique(sent["hidden_1/kernel"])) <= 8
    assert len(np.unique(ended.learner.policy["hidden_1/kernel"])) > 8


def test_a_resumed_run_has_the_network_it_was_stopped_with(tmp_path):
    run = tmp_path / "run"
    ended = train(run, "td3", "Pendulum-v1", settings_of("td3", steps=200))
    again = resumed(run)
    assert again.bits.begun and again.counts == ended.counts
    for name, variable in ended.learner.state.items():
        assert np.array_equal(variable, again.learner.state[name]), name
    seen = ended.sample.observations()
    assert np.array_equal(seen, again.sample.observations())
    both = [each.policies.current(0) for each in (ended, again)]
    assert both[0].packed.as_bytes() == both[1].packed.as_bytes()
    again.directory.close()
    went_on = train(run, settings={"steps": 220}, resume=True)
    assert went_on.done and went_on.config.train_bits_delay == 100
    assert not np.array_equal(
        went_on.learner.bits.quantizers.ranges, ended.learner.bits.quantizers.ranges
    )


def test_a_run_that_ended_in_float_begins_with_what_it_saw(tmp_path):
    run = tmp_path / "run"
    first = begun(run, "td3", "Pendulum-v1", **settings_of("td3", train_bits_delay=250))
    insert = first._insert

    def inserted(records):
        insert(records)
        if first.limiter.inserts >= 200:
            raise RunError("an actor died")

    first._insert = inserted
    with closing(first.directory), pytest.raises(RunError):
        first.run(unwatched)
    assert not first.bits.begun
    went_on = train(run, resume=True)
    assert went_on.bits.begun and len(went_on.sample.observations()) == 300


def test_a_damaged_network_in_a_checkpoint_is_an_error(tmp_path, monkeypatch):
    ended = train(tmp_path / "run", "td3", "Pendulum-v1", settings_of("td3"))
    facts = ended.bits.facts()
    damaged = {**facts, "graph": facts["graph"][:100]}
    monkeypatch.setattr(BitsPhase, "facts", lambda phase: damaged)
    ended.checkpoint()
    with pytest.raises(LoadError, match="network of few bits cannot be read"):
        resumed(tmp_path / "run")


def test_the_command_line_trains_in_few_bits(tmp_path):
    words = (
        "--algorithm td3 --env Pendulum-v1 --steps 160 --min-replay-size 60 --batch-size 16 "
        "--samples-per-insert 8 --hidden-sizes 16 --critic-hidden-sizes 16 --in-process "
        "--episodes 1 --train-bits 4 --train-bits-delay 100 --threshold-rate 0.01"
    )
    found = qgraph("rl", "train", *words.split(), "-o", tmp_path / "run")
    assert found.code == 0, found.err
    assert "its best (policy.qpol)" in found.out
    assert f"rl evaluate {tmp_path}/run/policy.qpol --against" in found.out.replace("\n", "")
    played = qgraph(
        "rl", "evaluate", tmp_path / "run/policy.qpol", "--against", tmp_path / "run/policy.pb",
        "--episodes", "2",
    )  # fmt: skip
    assert played.code == 0, played.err
    words += " --precision mixed_bfloat16"
    wrong = qgraph("rl", "train", *words.split(), "-o", tmp_path / "no")
    assert wrong.code, wrong.out
    assert "--train-bits and --precision mixed_bfloat16 exclude each other" in wrong.err


@pytest.mark.slow
@pytest.mark.parametrize("width", [4, 2])
def test_sac_learns_pendulum_in_few_bits(tmp_path, width):
    settings = {
        "in_process": True, "steps": 7000, "train_bits": width, "train_bits_delay": 4000,
        "hidden_sizes": (64, 64), "critic_hidden_sizes": (64, 64), "evaluate_every": 500,
    }  # fmt: skip
    ended = train(tmp_path, "sac", "Pendulum-v1", settings, threads=None)
    assert ended.counts.best > -250  # a random policy has about -1,200
