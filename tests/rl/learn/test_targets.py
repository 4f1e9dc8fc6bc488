"""Targets of learners: the errors of a step, against numpy on the same weights."""

from contextlib import closing

import numpy as np
import pytest

from qgraph.errors import UsageError
from qgraph.rl.agents import config_for
from qgraph.rl.agents.registry import check_fits, learner_for
from qgraph.rl.environments import make
from qgraph.rl.policy import floats
from tests.helpers.rl_records import transitions

pytest.importorskip("gymnasium", reason="needs the extra `rl`")
SIZES = {"hidden_sizes": (16,), "target_update_period": 1000, "seed": 3}


def begun(algorithm, name, **more):
    """A learner whose target networks are others than those that learn, and a batch."""
    environment = make(name)
    options = config_for(algorithm, name, **{**SIZES, **more})
    learner, rng = learner_for(options, environment), np.random.default_rng(1)
    for of in ("target", "critic_target"):
        for variable in getattr(learner, of, {}).values():
            variable.assign(variable + rng.normal(0, 0.3, variable.shape))
    batch = transitions(environment, 32, rng, discount=rng.choice([0, 0.9], 32))
    batch.importance[:] = rng.uniform(0.1, 1, 32)
    return learner, batch


def made(program, variables, x):
    weights = {name: variable.numpy() for name, variable in variables.items()}
    (found,) = floats.run(program, weights, x).values()
    return found


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("double", [True, False])
def test_dqn(double, dueling):
    learner, batch = begun("dqn", "CartPole-v1", double_q=double, dueling=dueling)
    records, rows = batch.records, np.arange(32)
    following = records["next_observation"]
    values = made(learner.program, learner.target, following)
    chooser = made(learner.program, learner.policy, following) if double else values
    assert (chooser.argmax(1) != values.argmax(1)).any() == double
    wanted = records["reward"] + records["discount"] * values[rows, chooser.argmax(1)]
    found = made(learner.program, learner.policy, records["observation"])[rows, records["action"]]
    error = np.abs(wanted - found)
    huber = np.where(error < 1, error**2 / 2, error - 0.5)
    errors, loss = learner.step(batch)
    np.testing.assert_allclose(errors, error, rtol=1e-4, atol=1e-5)
    assert loss == pytest.approx((batch.importance * huber).mean(), rel=1e-4)


def test_d4pg():
    learner, batch = begun("d4pg", "Pendulum-v1", critic_hidden_sizes=(16,), atoms=21, v_max=10.0)
    records = batch.records
    following, values = records["next_observation"], np.linspace(-10, 10, 21)
    chosen = made(learner.program, learner.target, following)
    ahead = softmax(made(learner.critic_program, learner.critic_target, joined(following, chosen)))
    wanted = np.zeros((32, 21))
    for i, record in enumerate(records):
        for atom, weight in enumerate(ahead[i]):
            at = np.clip(record["reward"] + record["discount"] * values[atom], -10, 10)
            place = at + 10  # atoms are 1 apart
            low = min(int(place), 19)
            wanted[i, low] += weight * (low + 1 - place)
            wanted[i, low + 1] += weight * (place - low)
    x, action = records["observation"], records["action"]
    found = softmax(made(learner.critic_program, learner.critic, joined(x, action)))
    error = -(wanted * np.log(found)).sum(1)
    errors, loss = learner.step(batch)
    np.testing.assert_allclose(errors, error, rtol=1e-4)
    assert loss == pytest.approx((batch.importance * error).mean(), rel=1e-4)


def test_d4pg_raises_what_its_critic_expects():
    learner, batch = begun("d4pg", "Pendulum-v1", critic_hidden_sizes=(16,), learning_rate=1e-3)
    x = batch.records["observation"]

    def expected():
        action = made(learner.program, learner.policy, x)
        logits = made(learner.critic_program, learner.critic, joined(x, action))
        return (softmax(logits) @ learner.values).mean()

    critic = {name: variable.numpy() for name, variable in learner.critic.items()}
    before = expected()
    learner.step(batch)
    for name, variable in learner.critic.items():  # the critic moves too: as it was
        variable.assign(critic[name])
    assert expected() > before


def test_d4pg_has_no_critic_for_images():
    with closing(make("tests.helpers.environments:Images-v0")) as images:
        with pytest.raises(UsageError, match="d4pg does not learn from images"):
            check_fits(config_for("d4pg", "Images-v0"), images)
        check_fits(config_for("sac", "Images-v0"), images)
        images.shape = (8, 16, 3)
        with pytest.raises(UsageError, match=r"images of 15 x 15 and more .* \[8, 16, 3\]"):
            check_fits(config_for("sac", "Images-v0"), images)
        images.shape = (4, 4)
        with pytest.raises(UsageError, match=r"SAC takes vectors, .* gives \[4, 4\]"):
            check_fits(config_for("sac", "Images-v0"), images)


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def joined(x, action):
    return np.concatenate([x, action], 1).astype("f4")
