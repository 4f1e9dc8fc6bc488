"""Policies in vector environments: the steps are those of each environment alone."""

import gymnasium
import numpy as np
import onnx
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from qgraph.errors import UsageError
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, VectorCollector, pack, read_policy
from tests.helpers.exported_policies import rsl_rl
from tests.helpers.exported_policies.written_graph import WrittenGraph, tensor

COUNT, STEPS = 3, 40
HEAD = Head("clip", (-0.8,) * 3, (0.9,) * 3)


class Walk(gymnasium.Env):
    """Observations follow actions; the length of an episode is drawn."""

    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
    action_space = spaces.Box(-1, 1, (3,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 7))
        self.at = self.np_random.normal(size=6).astype(np.float32)
        return self.at, {}

    def step(self, action):
        self.left -= 1
        drift = self.np_random.normal(size=6)
        self.at = (0.5 * self.at + drift + np.tile(action, 2)).astype(np.float32)
        ended = self.left == 0
        cut = ended and bool(self.np_random.integers(2))
        return self.at, float(action.sum()), ended and not cut, cut, {}


class Masked(gymnasium.Env):
    """The mask allows one action, which the observation names."""

    observation_space, action_space = spaces.Box(0, 3, (4,), np.float32), spaces.Discrete(3)

    def _seen(self):
        mask = np.zeros(3, np.int8)
        self.valid = int(self.np_random.integers(3))
        mask[self.valid] = 1
        return self.np_random.uniform(0, 3, 4).astype(np.float32), {"action_mask": mask}

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen()

    def step(self, action):
        reward = float(action == self.valid)
        seen, infos = self._seen()
        return seen, reward, bool(self.np_random.random() < 0.2), False, infos


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    path = tmp_path_factory.mktemp("vector") / "policy.onnx"
    onnx.save(rsl_rl.recurrent("LSTM"), path)
    states = {"h_in": "h_out", "c_in": "c_out"}
    return pack(read_policy(path, outputs=["actions"], states=states), HEAD)


def alone(packed, seed, steps):
    """The steps of one environment, and the returns of its episodes."""
    policy, one = Policy(packed), Walk()
    rows, returns, total = [], [], 0.0
    seen, _ = one.reset(seed=seed)
    for _ in range(steps):
        action = policy(seen)
        after, reward, terminated, truncated, _ = one.step(action)
        rows.append((seen, action, reward, terminated, truncated))
        total += reward
        seen = after
        if terminated or truncated:
            policy.reset()
            seen, _ = one.reset()
            returns.append(total)
            total = 0.0
    return [np.stack(column) for column in zip(*rows, strict=True)], returns


@pytest.mark.parametrize("mode", AutoresetMode)
def test_each_environment_steps_as_it_would_alone(recurrent, mode):
    environments = SyncVectorEnv([Walk] * COUNT, autoreset_mode=mode)
    collector = VectorCollector(environments, Policy(recurrent), seed=5)
    parts = [collector.collect(steps) for steps in (1, 7, STEPS - 8)]
    returns = []
    for i in range(COUNT):
        counted = np.concatenate([part.counted[:, i] for part in parts])
        assert counted.all() == (mode is not AutoresetMode.NEXT_STEP)
        columns, own = alone(recurrent, 5 + i, int(counted.sum()))
        returns += own
        for name, wanted in zip(
            ("observations", "actions", "rewards", "terminated", "truncated"), columns, strict=True
        ):
            found = np.concatenate([getattr(part, name)[:, i] for part in parts])
            assert np.array_equal(found[counted], wanted), name
    assert len(returns) > 3 * COUNT
    np.testing.assert_allclose(
        sorted(each for part in parts for each in part.returns), sorted(returns), rtol=1e-12
    )


def test_states_of_some_episodes_begin_anew(recurrent):
    policy, fresh = Policy(recurrent), Policy(recurrent)
    x = np.random.default_rng(0).normal(size=(2, 3, 6)).astype(np.float32)
    policy(x[0])
    policy.reset(np.array([False, True, False]))
    found, wanted = policy(x[1]), fresh(x[1])
    assert np.array_equal(found[1], wanted[1])
    assert not np.array_equal(found[0], wanted[0]) and not np.array_equal(found[2], wanted[2])
    with pytest.raises(UsageError, match=r"shape \[2\], and there are 3 states"):
        policy.reset(np.array([True, False]))


@pytest.fixture
def dense(tmp_path):
    """Makes a policy of one layer."""
    return lambda *sizes: written(tmp_path / "policy.onnx", *sizes)


def written(path, head, inputs=4, outputs=3):
    graph = WrittenGraph(17)
    graph.linear("x", "layer", inputs, outputs, to="y")
    model = graph.model([tensor("x", "batch", inputs)], [tensor("y", "batch", outputs)])
    onnx.save(model, path)
    return Policy(pack(read_policy(path), head))


def test_masks_of_the_environments_are_obeyed(dense):
    head = Head("argmax", masks=True)
    found = VectorCollector(SyncVectorEnv([Masked] * COUNT), dense(head), seed=1).collect(STEPS)
    assert (found.rewards[found.counted] == 1).all() and len({*found.actions.flat}) == 3
    plain = VectorCollector(SyncVectorEnv([Masked] * COUNT), dense(Head("argmax")), seed=1)
    assert (plain.collect(STEPS).rewards != 1).any()
    cart = gymnasium.make_vec("CartPole-v1", 2)
    with pytest.raises(UsageError, match="the environments give none"):
        VectorCollector(cart, dense(head, 4, 2)).collect(1)


def test_heads_that_do_not_fit_are_refused(recurrent, dense):
    environments = gymnasium.make_vec("CartPole-v1", 2)
    with pytest.raises(UsageError, match="`clip` head does not fit actions Discrete"):
        VectorCollector(environments, Policy(recurrent))
    with pytest.raises(UsageError, match="no head"):
        VectorCollector(environments, dense(None))
    with pytest.raises(UsageError, match="0 steps cannot be collected"):
        VectorCollector(environments, dense(Head("argmax"), 4, 2)).collect(0)


def test_environments_of_envpool(dense):
    envpool = pytest.importorskip("envpool", reason="pip install envpool")
    environments = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=16, seed=3)
    policy = dense(Head("argmax"), 4, 2)
    found = VectorCollector(environments, policy).collect(600)
    assert found.rewards.shape == (600, 16) and len(found.returns) >= 16
    flat = found.observations.reshape(-1, 4)
    assert np.array_equal(found.actions.reshape(-1), policy(flat))
    begins = ~found.counted
    assert begins.any() and (np.abs(found.observations[1:][begins[:-1]]) <= 0.05).all()
    assert sum(found.returns) <= found.rewards[found.counted].sum()
