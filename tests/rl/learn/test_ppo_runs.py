"""Runs of PPO: rollouts of one policy each, by actors of few bits."""

import os
import signal

import numpy as np
import pytest

from qgraph.errors import UsageError
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.agents.ppo.learner import PpoLearner
from qgraph.rl.learn.runs import train
from qgraph.rl.learn.sources import LocalActors
from qgraph.rl.policy.about import about
from tests.helpers.ppo import SMALL
from tests.helpers.runs import begun, resumed, rows, unwatched

pytest.importorskip("gymnasium", reason="needs the extra `rl`")
TASKS = ("CartPole-v1", "Pendulum-v1")


@pytest.fixture
def batches(monkeypatch):
    """The rollouts that learners learn from, with the number of the learner step."""
    found, step = [], PpoLearner.step

    def kept(self, batch):
        found.append((int(self.taken), batch.records))
        return step(self, batch)

    monkeypatch.setattr(PpoLearner, "step", kept)
    return found


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("CartPole-v1", {}),
        ("Pendulum-v1", {}),
        ("Pendulum-v1", {"in_process": False, "on_demand": True}),
    ],
)
def test_a_rollout_is_made_by_one_policy(tmp_path, batches, task, more):
    """All actors give the same number of steps, and none is left out."""
    training = train(tmp_path / "run", "ppo", task, {**SMALL, "actor_bits": 8, **more})
    assert training.done and len(batches) == 5 and not training.warnings
    for step, records in batches:
        assert (records["version"] == step).all()
        assert records["actor"].tolist() == sorted([0, 1, 2] * 20)
    assert rows(tmp_path / "run" / "progress.csv")[-1]["staleness"] == "0.0"


def test_actors_that_do_not_wait_may_be_one_policy_behind(tmp_path, batches):
    more = {"synchronous": False, "actors": 4}
    train(tmp_path / "run", "ppo", "CartPole-v1", {**SMALL, **more})
    behind = {int(step - version) for step, records in batches for version in records["version"]}
    assert behind == {0, 1}


def test_a_killed_actor_ends_no_run(tmp_path, batches):
    """The actor that replaces it continues the rollout; at most its last step is repeated."""
    training = begun(
        tmp_path / "run", "ppo", "CartPole-v1", **{**SMALL, "in_process": False, "steps": 1200}
    )
    insert, killed = training._insert, []

    def inserted(records):
        insert(records)
        if training.limiter.inserts > 300 and not killed:
            child = training.actors.run.children["actor 1"]
            os.kill(child.process.pid, signal.SIGKILL)
            killed.append(child)

    training._insert = inserted
    assert training.run(unwatched)
    training.directory.close()
    assert len(batches) == 20
    assert training.warnings == ["actor 1 was restarted: it was killed by SIGKILL"]
    for step, records in batches:
        assert set(step - records["version"]) <= {0, 1}
        assert (records["version"] == step).mean() > 0.9


@pytest.mark.parametrize("task", TASKS)
def test_log_probabilities_are_those_of_the_packed_policy(tmp_path, monkeypatch, batches, task):
    published, publish = {}, LocalActors.publish

    def keep(self, weights, version):
        published[version] = {name: v.numpy() for name, v in weights.items()}
        publish(self, weights, version)

    monkeypatch.setattr(LocalActors, "publish", keep)
    more = {"actor_bits": 2, "first_bits": 2, "last_bits": 2, "learning_rate": 0.03}
    made = train(tmp_path / "run", "ppo", task, {**SMALL, **more}).learner
    program = made.acting.spec.program

    def errors(bits):
        packer, found = Packer(program, bits), []
        for step, records in batches:
            outputs = Actor(packer.pack(published[step]))(records["observation"]).astype(float)
            if made.head.discrete:
                logs = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
                density = np.take_along_axis(logs, records["action"][:, None], -1)[:, 0]
            else:
                mean, log_std = np.split(outputs, 2, -1)
                away = (records["action"] - mean) / np.exp(log_std)
                density = -(away**2 / 2 + log_std + np.log(2 * np.pi) / 2).sum(-1)
            found.append(abs(density - records["log_probability"]).max())
        return max(found)

    assert errors(2) < 1e-4 < 0.01 < errors(32)


@pytest.mark.parametrize("task", TASKS)
def test_float_actors_are_not_clipped_at_first(tmp_path, monkeypatch, task):
    measures, step = [], PpoLearner.step

    def kept(self, batch):
        result = step(self, batch)
        measures.append(self.measures)
        return result

    monkeypatch.setattr(PpoLearner, "step", kept)
    train(tmp_path / "run", "ppo", task, {**SMALL, "epochs": 1, "minibatch_size": 60})
    assert all(found.clipped == 0 and abs(found.kl) < 1e-6 for found in measures)
    assert len(measures) == 5


@pytest.mark.parametrize("task", TASKS)
def test_one_seed_is_one_result_and_a_resumed_run_continues_with_the_same_bits(
    tmp_path, batches, task
):
    one, other = (train(tmp_path / name, "ppo", task, SMALL) for name in "ab")
    again = resumed(tmp_path / "a")
    again.directory.close()
    assert one.limiter.inserts == again.limiter.inserts and one.counts == again.counts
    _, records = batches[0]
    last = other.replay.sample(0, None)
    for training in (one, other, again):
        training.replay.add(records)
        training._learn()
    assert not len(last.records)
    for name, variable in one.learner.state.items():
        assert np.array_equal(variable, other.learner.state[name]), name
        assert np.array_equal(variable, again.learner.state[name]), name
    went_on = train(tmp_path / "b", settings={"steps": 450}, resume=True)
    assert went_on.limiter.inserts == 450 and went_on.counts.learner_steps == 7


@pytest.mark.parametrize("in_process", [True, False])
def test_a_resumed_run_begins_another_rollout(tmp_path, batches, in_process):
    """The 40 steps of an incomplete one are not learned from."""
    settings = {**SMALL, "steps": 100, "in_process": in_process, "actors": 2}
    train(tmp_path / "run", "ppo", "CartPole-v1", settings)
    went_on = train(tmp_path / "run", settings={"steps": 280}, resume=True)
    assert went_on.limiter.inserts == 280 and went_on.counts.learner_steps == len(batches) == 4
    for step, records in batches:
        assert (records["version"] == step).all()


def test_a_policy_of_numbers_is_written_with_its_deviations(tmp_path):
    settings = {**SMALL, "learning_rate": 0.03}
    made = train(tmp_path / "run", "ppo", "Pendulum-v1", settings).learner
    written = about(tmp_path / "run" / "policy.pb")
    assert written.exported_head == made.head and made.head.log_std != (0.0,)


def test_compression_is_for_discrete_actions(tmp_path):
    more = {"synchronous": False, "compress": "prune(0.5)"}
    with pytest.raises(UsageError, match="deviations"):
        train(tmp_path / "run", "ppo", "Pendulum-v1", {**SMALL, **more})
    assert not (tmp_path / "run").exists()
    assert train(tmp_path / "run", "ppo", "CartPole-v1", {**SMALL, **more}).done


@pytest.mark.slow
def test_ppo_balances(tmp_path):
    settings = {"in_process": True, "actors": 4, "actor_bits": 8, "steps": 40_960}
    train(tmp_path / "run", "ppo", "CartPole-v1", {**settings, "batch_size": 1024})
    found = [float(row["return_mean"]) for row in rows(tmp_path / "run" / "progress.csv")]
    assert found[-1] > 450


@pytest.mark.slow
def test_ppo_swings_up(tmp_path):
    settings = {"in_process": True, "actors": 4, "actor_bits": 8, "steps": 102_400}
    more = {"batch_size": 4096, "learning_rate": 1e-3, "discount": 0.9}
    train(tmp_path / "run", "ppo", "Pendulum-v1", {**settings, **more})
    found = [float(row["return_mean"]) for row in rows(tmp_path / "run" / "progress.csv")]
    assert found[-1] > -300
