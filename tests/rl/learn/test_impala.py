"""IMPALA: one step against numpy, its queue, and that what acted is what is corrected for."""

from pathlib import Path

import numpy as np
import pytest

from qgraph.errors import UnsupportedError, UsageError
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.agents import config_for
from qgraph.rl.agents.impala.learner import EPSILON, NORM
from qgraph.rl.compress.worker import CompressionWorker
from qgraph.rl.correct import Correction, Trajectories
from qgraph.rl.learn.queue import TrajectoryQueue, follows
from qgraph.rl.learn.runs import train
from qgraph.rl.learn.sources import LocalActors
from tests.helpers.impala import RECORD, SCALE, SMALL, learner, trajectories
from tests.helpers.rl_records import batch_of
from tests.helpers.runs import MANY, begun, ends_when, resumed, rows, unwatched

pytest.importorskip("gymnasium", reason="needs the extra `rl`")
ROOT = Path(__file__).parents[3]
CORRECTIONS = ("none", "vtrace,is", "retrace(0.9),is", "tree_backup")


def outputs(weights, x):
    """The network of one hidden layer, written out: logits and values of the critic's head."""
    hidden = np.maximum(x @ weights["hidden_0/kernel"] + weights["hidden_0/bias"], 0)
    heads = ("output", "value")
    return [hidden @ weights[f"{head}/kernel"] + weights[f"{head}/bias"] for head in heads]


def loss_of(weights, found, options, constants=None):
    """The loss in numpy, and what its gradient takes as constant."""
    correct = Correction.parse(options.correction)
    actions = found["action"][..., None].astype(int)

    def judged(x):
        logits, values = outputs(weights, x.astype(np.float64))
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        mean = (np.exp(logs) * values).sum(-1) if correct.of_actions else values[..., 0]
        return logs, values, mean

    logs, values, states = judged(found["observation"])
    log_pi = np.take_along_axis(logs, actions, -1)[..., 0]
    chosen = np.take_along_axis(values, actions, -1)[..., 0] if correct.of_actions else states
    if constants is None:
        running = found["length"] == 0
        *_, following = judged(found["next_observation"])
        constants = correct(
            Trajectories(
                log_pi, found["log_probability"].astype(np.float64),
                SCALE * found["reward"].astype(np.float64), found["discount"].astype(np.float64),
                running.astype(float), states, following, chosen if correct.of_actions else None,
            )
        )  # fmt: skip
    policy = -np.mean(constants.weights * constants.advantages * log_pi)
    value = np.mean((constants.targets - chosen) ** 2) / 2
    entropy = -np.mean((np.exp(logs) * logs).sum(-1))
    return policy + options.value_cost * value - options.entropy_cost * entropy, constants


@pytest.mark.parametrize("correct", CORRECTIONS)
def test_a_step_is_one_of_adam_down_the_papers_loss(correct):
    made, found = learner(correction=correct), trajectories()
    before = {name: v.numpy().astype(np.float64) for name, v in made.weights.items()}
    wanted, constants = loss_of(before, found, made.config)
    _, loss = made.step(batch_of(found))
    assert loss == pytest.approx(wanted, rel=1e-5)

    def loss_near(name, at, step):
        moved = {**before, name: before[name].copy()}
        moved[name][at] += step
        return loss_of(moved, found, made.config, constants)[0]

    gradients = {}
    for name, weights in before.items():
        gradients[name] = np.zeros_like(weights)
        for at in np.ndindex(weights.shape):
            change = loss_near(name, at, 1e-5) - loss_near(name, at, -1e-5)
            gradients[name][at] = change / 2e-5
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    for name, gradient in gradients.items():
        held = gradient * min(1, NORM / norm)
        change = made.weights[name].numpy() - before[name]
        # The first step of Adam, after which its moments are 0.1 g and 0.001 g ** 2.
        wanted = -made.config.learning_rate * held / (np.abs(held) + EPSILON / np.sqrt(0.001))
        assert made.adam.state[f"first/{name}"].numpy() == pytest.approx(0.1 * held, abs=1e-6)
        sure = np.abs(held) > 0.001  # of its sign, in float32
        assert change[sure] == pytest.approx(wanted[sure], rel=0.02)
    assert norm > 0.1


@pytest.mark.parametrize("more", [{}, {"precision": "mixed_bfloat16"}, {"layer_norm": True}])
@pytest.mark.parametrize("correct", CORRECTIONS)
def test_steps_are_finite(correct, more):
    made = learner(correction=correct, **more)
    for seed in range(3):
        errors, loss = made.step(batch_of(trajectories(seed=seed)))
        assert errors.shape == (5, 4) and np.isfinite(errors).all() and np.isfinite(loss)
    for name, variable in made.state.items():
        assert np.isfinite(variable.numpy()).all(), name


def test_actors_get_the_policy_alone():
    made = learner()
    assert set(made.policy) == {
        "hidden_0/kernel", "hidden_0/bias", "output/kernel", "output/bias"
    }  # fmt: skip
    assert set(made.weights) - set(made.policy) == {"value/kernel", "value/bias"}
    assert made.program.outputs == ("output",)
    arrays = {name: v.numpy() for name, v in made.policy.items()}
    x = np.ones((2, 4), np.float32)
    logits, _ = outputs({name: v.numpy() for name, v in made.weights.items()}, x)
    assert Actor(Packer(made.program, 32).pack(arrays))(x) == pytest.approx(logits, abs=1e-5)


def test_log_probabilities_are_asked_for():
    found = trajectories()
    found["log_probability"][2, 2] = np.nan
    with pytest.raises(UsageError, match="log probabilities of the policy that acted"):
        learner().step(batch_of(found))
    learner(correction="tree_backup").step(batch_of(found))


def test_steps_follow_each_other_but_for_ends_and_new_actors():
    found = trajectories()
    found["observation"][3, 2] += 1  # the actor was replaced before
    wanted = np.ones((5, 4))
    wanted[4] = wanted[1, 0] = wanted[2, 1] = wanted[2, 2] = 0
    assert np.array_equal(follows(found), wanted)


def steps_of(actor, count, begin=0):
    found = np.zeros(count, RECORD)
    found["actor"], found["length"] = actor, np.arange(begin, begin + count)
    return found


def test_the_queue_gives_each_step_once_in_order():
    queue, rng = TrajectoryQueue(3, RECORD), np.random.default_rng(0)
    given, taken, sizes = {0: 0, 1: 0}, [], []
    for _ in range(50):
        actor, count = int(rng.integers(2)), int(rng.integers(1, 6))
        queue.add(steps_of(actor, count, given[actor]))
        given[actor] += count
        if len(queue.complete) >= 2:
            batch = queue.sample(6, rng).records
            assert batch.shape == (3, 2)
            taken += list(batch.T)
        sizes.append(len(queue))
    assert sizes[-1] == sum(given.values()) - 3 * len(taken)
    for actor in (0, 1):
        mine = [one for one in taken if one["actor"][0] == actor]
        assert all((one["actor"] == actor).all() for one in mine)
        order = np.concatenate([one["length"] for one in mine])
        assert np.array_equal(order, np.arange(len(order)))


def test_a_restored_queue_continues_like_the_original():
    queue, again = (TrajectoryQueue(3, RECORD) for _ in range(2))
    for actor, count in ((1, 4), (0, 5), (1, 3)):
        queue.add(steps_of(actor, count))
    again.restore(queue.state())
    for each in (queue, again):
        each.add(steps_of(0, 2))
    rng = np.random.default_rng(0)
    assert queue.nbytes == again.nbytes
    assert queue.sample(12, rng).records.tobytes() == again.sample(12, rng).records.tobytes()


@pytest.mark.parametrize("actors", [1, 7, 40])
def test_a_batch_that_may_be_sampled_is_there(actors):
    """However steps come in: here as badly as can be, one of each actor in turn."""
    config = config_for("impala", "CartPole-v1", **{**SMALL, "actors": actors})
    limiter, most = config.limiter(), 0
    queue, turn = TrajectoryQueue(config.unroll_length, RECORD), 0
    for _ in range(2000):
        count = limiter.may_insert()
        for _ in range(min(count, 3)):
            queue.add(steps_of(turn % actors, 1))
            limiter.insert(1)
            turn += 1
        most = max(most, len(queue))
        if limiter.may_sample():
            limiter.sample()
            queue.sample(config.batch_size, None)
        else:
            assert count > 0  # one of both may continue
    assert limiter.samples > 1000
    assert most <= 2 * config.batch_size + actors * (config.unroll_length - 1)


@pytest.mark.parametrize("correct", ["vtrace,is", "retrace,is"])
def test_a_run_reports_its_results(tmp_path, correct):
    training = train(tmp_path / "run", "impala", "CartPole-v1", {**SMALL, "correction": correct})
    assert training.done and training.limiter.inserts == 400
    # All but what is left in the queue was learnt from, once.
    assert training.limiter.samples == 400 - len(training.replay)
    found = rows(tmp_path / "run" / "progress.csv")
    assert int(found[-1]["learner_steps"]) == training.counts.learner_steps >= 18
    assert all(float(row["samples_per_insert"]) <= 1 for row in found)


def test_one_seed_is_one_result(tmp_path):
    one, other = (train(tmp_path / name, "impala", "CartPole-v1", SMALL) for name in "ab")
    for name, variable in one.learner.state.items():
        assert np.array_equal(variable, other.learner.state[name]), name


def test_a_resumed_run_continues_with_the_same_bits(tmp_path):
    ended = train(tmp_path / "run", "impala", "CartPole-v1", SMALL)
    again = resumed(tmp_path / "run")
    again.directory.close()
    assert ended.limiter == again.limiter and ended.counts == again.counts
    assert len(ended.replay) == len(again.replay) > 0
    rest = steps_of(0, 20)
    rest["log_probability"] = -0.5
    for training in (ended, again):
        training.replay.add(rest)
        training._learn()
    for name, variable in ended.learner.state.items():
        assert np.array_equal(variable, again.learner.state[name]), name
    went_on = train(tmp_path / "run", settings={"steps": 600}, resume=True)
    assert went_on.limiter.inserts == 600


@pytest.mark.parametrize(
    "compressed",
    [
        {"actor_bits": 2, "first_bits": 2, "last_bits": 2},
        {"compress": "prune(0.5)"},
        {"compress": "distill(8, steps=2)"},
        {"compress": "quantize(2, 2, 2)"},
        {"compress": "prune(0.5)|distill(steps=2)|quantize(2)", "monitor": "mix:0.5"},
    ],
)
def test_log_probabilities_are_those_of_the_compressed_policy_of_their_version(
    tmp_path, monkeypatch, compressed
):
    """Each record's, and not those of the original of its version."""
    published, blocks, seen = {}, {}, []
    publish, compress, add = LocalActors.publish, CompressionWorker.step, TrajectoryQueue.add

    def keep(self, weights, version):
        published[version] = {name: v.numpy() for name, v in weights.items()}
        publish(self, weights, version)

    def keep_block(self, weights, facts, observations):
        blocks[facts.version] = compress(self, weights, facts, observations)
        return blocks[facts.version]

    monkeypatch.setattr(LocalActors, "publish", keep)
    monkeypatch.setattr(CompressionWorker, "step", keep_block)
    monkeypatch.setattr(TrajectoryQueue, "add", lambda self, x: (seen.append(x), add(self, x)))
    settings = {**SMALL, "actor_bits": 32, **compressed, "learning_rate": 0.03}
    made = train(tmp_path / "run", "impala", "CartPole-v1", settings)
    found = np.concatenate(seen)
    assert len(set(found["version"])) > 10

    def packed(bits):
        packer = Packer(made.learner.program, bits)
        return {version: packer.pack(weights) for version, weights in published.items()}

    def log_probabilities(blocks):
        actors = {version: Actor(block) for version, block in blocks.items()}
        logits = np.stack([actors[r["version"].item()](r["observation"][None])[0] for r in found])
        logs = logits - np.log(np.exp(logits.astype(np.float64)).sum(-1, keepdims=True))
        return np.take_along_axis(logs, found["action"][:, None], -1)[:, 0]

    assert found["log_probability"] == pytest.approx(
        log_probabilities(blocks if "compress" in compressed else packed(2)), abs=1e-5
    )
    assert np.abs(found["log_probability"] - log_probabilities(packed(32))).max() > 0.01


def test_a_queue_too_large_to_store_is_filled_again(tmp_path, monkeypatch):
    monkeypatch.setattr("qgraph.rl.learn.training.KEPT_REPLAY", 0)
    settings = dict(SMALL)
    ended = train(tmp_path / "run", "impala", "CartPole-v1", settings)
    went_on = train(tmp_path / "run", settings={"steps": 800}, resume=True)
    left = len(went_on.replay)
    assert went_on.limiter.samples - ended.limiter.samples == 400 - left
    assert left <= 2 * settings["batch_size"] + settings["actors"] * (
        ended.config.unroll_length - 1
    )


def test_actors_in_processes_bring_log_probabilities(tmp_path):
    more = {"in_process": False, "actors": 2, "steps": MANY}
    training = begun(tmp_path / "run", "impala", "CartPole-v1", **{**SMALL, **more})
    came = ends_when(training, lambda records: records["version"].max() > 5)
    assert training.run(unwatched)
    training.directory.close()
    assert (np.concatenate(came)["log_probability"] < 0).all()


@pytest.mark.parametrize(
    ("algorithm", "environment", "more", "said"),
    [
        ("impala", "CartPole-v1", {"correction": "vtrac"}, "unknown corrector `vtrac`"),
        ("impala", "CartPole-v1", {"correction": "vtrace(0)"}, "must be above 0"),
        ("impala", "CartPole-v1", {"replicas": 3}, "of 5 for each of 3 replicas"),
        ("impala", "CartPole-v1", {"n": 7}, "not a multiple of trajectories of 7"),
        (
            "impala",
            "CartPole-v1",
            {"samples_per_insert": 2.0},
            "impala has no setting samples_per_insert",
        ),
        ("impala", "Pendulum-v1", {}, "whose actions are numbers"),
        ("dqn", "CartPole-v1", {"correction": "vtrace"}, "dqn has no setting correction"),
    ],
)
def test_what_does_not_fit_is_reported_and_nothing_is_written(
    tmp_path, algorithm, environment, more, said
):
    with pytest.raises(UsageError, match=said):
        train(tmp_path / "run", algorithm, environment, more)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RaisesToCorrect", ".*a mistake of its author"),
        ("OfOneStep", r"gives targets of shape \[4\], but steps have \[5, 4\]"),
        ("BranchesByNumbers", "Using a symbolic"),
        ("FailsAsItRuns", ".*a mistake of its author"),
    ],
)
def test_correctors_of_ones_own_are_tried_before_anything_is_written(tmp_path, name, said):
    corrector = f"tests.helpers.plain_links.{name}"
    with pytest.raises(UnsupportedError, match=rf"^`{corrector}`:?( failed:)? {said}"):
        train(tmp_path / "run", "impala", "CartPole-v1", {**SMALL, "correction": corrector})
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_impala_balances(tmp_path):
    settings = {"in_process": True, "actors": 8, "actor_bits": 8, "evaluate_every": 100}
    train(tmp_path / "run", "impala", "CartPole-v1", settings)
    found = [float(row["return_mean"]) for row in rows(tmp_path / "run" / "progress.csv")]
    assert max(found) > 450 and np.mean(found[-3:]) > 300
