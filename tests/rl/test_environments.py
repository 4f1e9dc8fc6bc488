"""Environments by name, all alike."""

import re
from functools import reduce
from operator import add

import numpy as np
import pytest

from qgraph.errors import RunError, UsageError
from qgraph.rl.environments import Actions, make
from qgraph.rl.environments.separate_process import SeparateEnvironment
from qgraph.rl.head import Head

MINATAR = "MinAtar/Breakout-v1"
GYMNASIUM = ["CartPole-v1", "Pendulum-v1"]
NAMES = [
    *GYMNASIUM,
    "dm_control:cartpole-balance",
    "dm_control:ball_in_cup-catch",
    "dm_control:cartpole-swingup:held",
    "ALE/Pong-v5",
    MINATAR,
]
NEEDED = {"dm_control": "dm_control", "ALE": "ale_py", "MinAtar": "minatar"}


def made(name):
    pytest.importorskip(NEEDED.get(re.split("[:/]", name)[0], "gymnasium"))
    return make(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_decides_how_an_episode_begins(name):
    environment = made(name)
    first, other = environment.reset(3), environment.reset(4)
    assert (environment.reset(3) == first).all()
    assert first.shape == environment.shape and first.dtype == environment.dtype
    assert name in ("ALE/Pong-v5", MINATAR) or (first != other).any()
    actions = environment.actions
    action = 0 if actions.discrete else np.array(actions.high, np.float32)
    outcome = environment.step(action)
    assert outcome.observation.shape == first.shape and outcome.discount == 1 and not outcome.over
    environment.close()


@pytest.mark.parametrize(("task", "times"), [("cartpole-swingup", 8), ("pendulum-swingup", 1)])
def test_actions_that_are_held(task, times):
    single, held = made(f"dm_control:{task}"), made(f"dm_control:{task}:held")
    assert (single.reset(3) == held.reset(3)).all() and single.actions == held.actions
    rng, over = np.random.default_rng(0), []
    while not (over and over[-1]):
        action = rng.uniform(*held.actions.low, *held.actions.high, 1)
        outcome, each = held.step(action), [single.step(action) for _ in range(times)]
        assert (outcome.observation == each[-1].observation).all()
        assert outcome.reward == reduce(add, (found.reward for found in each))  # `sum` compensates
        over.append(outcome.over)
        assert outcome.over == each[-1].over
    assert len(over) == 1000 // times


def test_one_in_a_process_of_its_own_is_the_same():
    pytest.importorskip("gymnasium")
    here, apart = make("CartPole-v1"), SeparateEnvironment("CartPole-v1")
    assert (apart.shape, apart.dtype, apart.actions) == (here.shape, here.dtype, here.actions)
    assert (apart.reset(3) == here.reset(3)).all()
    for action in (0, 1, 1):
        found, wanted = apart.step(action), here.step(action)
        assert (found.observation == wanted.observation).all() and found.reward == wanted.reward
    apart.close()
    assert apart.process.returncode == 0
    with pytest.raises(RunError, match="the process of `CartPole-v1` has ended"):
        apart.reset()


@pytest.mark.parametrize("waited", [True, False])
def test_an_environment_whose_process_was_killed(waited):
    pytest.importorskip("gymnasium")
    apart = SeparateEnvironment("CartPole-v1")
    apart.process.kill()
    if waited:  # what it is asked goes nowhere; else it may, and is never answered
        apart.process.wait()
    for _ in range(2):
        with pytest.raises(RunError, match="the process of `CartPole-v1` has ended"):
            apart.reset(0)
    apart.close()


def test_a_process_that_ends_before_its_first_message(monkeypatch):
    monkeypatch.setattr("qgraph.rl.environments.separate_process.MODULE", "__future__")
    with pytest.raises(RunError, match="the process of `CartPole-v1` has ended"):
        SeparateEnvironment("CartPole-v1")


def test_an_unknown_environment_is_reported_by_its_process():
    pytest.importorskip("gymnasium")
    with pytest.raises(UsageError, match="unknown environment `CartPool-v1`") as caught:
        SeparateEnvironment("CartPool-v1")
    assert "CartPole-v1" in caught.value.hint


def boolean_images(shape, observation):
    """Register an environment of booleans, as a package does by an entry point."""
    gymnasium = pytest.importorskip("gymnasium")

    class Flashes(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, shape, bool)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.broadcast_to(observation, shape), {}

        def step(self, action):
            return ~np.broadcast_to(observation, shape), 1.0, False, False, {}

    return lambda: gymnasium.register("flashes/Flash-v0", Flashes)


@pytest.mark.parametrize(("shape", "white"), [((4, 4, 2), 255), ((2,), 1)])
def test_environments_of_a_package_with_images_of_booleans(monkeypatch, shape, white):
    gymnasium = pytest.importorskip("gymnasium")

    class EntryPoint:
        name = "flashes"

        def load(self):
            return boolean_images(shape, np.array([True, False]))

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [EntryPoint()])
    try:
        environment = make("flashes/Flash-v0")
        assert environment.reset(0).dtype == environment.dtype == ("u1" if white == 255 else "f4")
        assert (environment.reset(0) == np.broadcast_to([white, 0], shape)).all()
        assert (environment.step(0).observation == np.broadcast_to([0, white], shape)).all()
    finally:
        del gymnasium.registry["flashes/Flash-v0"]


@pytest.mark.parametrize("name", GYMNASIUM)
def test_a_terminal_state_has_value_0_and_a_truncated_one_does_not(name):
    environment = made(name)
    environment.reset(0)
    for _ in range(500):
        outcome = environment.step(0 if environment.actions.discrete else np.zeros(1, "f4"))
        if outcome.over:
            break
    assert outcome.over and outcome.discount == (0 if name == "CartPole-v1" else 1)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("CartPole-v7", "CartPole-v1"),
        ("dm_control:cartpole-balanc", "dm_control:cartpole-balance"),
        ("ALE/Pnog-v5", "ALE/Pong-v5"),
    ],
)
def test_unknown_names_get_similar_names_as_a_hint(name, near):
    with pytest.raises(UsageError, match=f"did you mean .*{near}"):
        made(name)


def test_heads_have_to_fit():
    two, one = Actions(count=2), Actions(low=(-1.0,), high=(1.0,))
    two.check(Head("argmax"), 2)
    one.check(Head("squashed_gaussian", (-1.0,), (1.0,)), 2)
    with pytest.raises(UsageError, match="takes one of several"):
        two.check(Head("clip", (-1.0,), (1.0,)), 1)
    with pytest.raises(UsageError, match="3 outputs, the environment takes 2"):
        two.check(Head("argmax"), 3)


@pytest.mark.parametrize(
    ("missing", "name", "hint"),
    [
        ("gymnasium", "CartPole-v1", "pip install gymnasium"),
        (
            "dm_control.suite",
            "dm_control:a-b",
            "pip install dm-control, or pip install 'qgraph-compiler[rl]'",
        ),
        ("ale_py", "ALE/Pong-v5", "pip install ale-py, or pip install 'qgraph-compiler[atari]'"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(missing, name, hint, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError) as raised:
        make(name)
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    "name",
    [
        "ALE/Pong", "ALE/Pong-v4", "ALE/Pong-v0", "ALE/Pong-v6", "ALE/PongNoFrameskip-v4",
        "ALE/PongDeterministic-v4", "ALE/Pong-ram-v5", "ALE/pong-v5", "ALE/Pong-v5:held", "ALE/",
    ],
)  # fmt: skip
def test_games_are_called_as_ale_py_calls_them(name):
    with pytest.raises(UsageError, match="unknown environment"):
        made(name)


def test_a_game_is_the_one_that_gymnasium_has(monkeypatch):
    ale_py = pytest.importorskip("ale_py")
    import gymnasium

    gymnasium.register_envs(ale_py)
    given = {}
    real = ale_py.vector_env.AtariVectorEnv

    def create(**settings):
        given.update(settings)
        return real(**settings)

    monkeypatch.setattr(ale_py.vector_env, "AtariVectorEnv", create)
    made("ALE/MsPacman-v5").close()
    spec = gymnasium.registry["ALE/MsPacman-v5"].kwargs
    assert spec["repeat_action_probability"] == 0.25 and spec["frameskip"] == 4
    assert spec.items() <= given.items() and given["reward_clipping"] is False


def test_rewards_of_a_game_are_its_own():
    environment = made("ALE/MsPacman-v5")
    environment.reset(3)
    rng = np.random.default_rng(0)
    rewards = [environment.step(int(rng.integers(9))).reward for _ in range(150)]
    environment.close()
    assert max(rewards) >= 10 and not any(0 < reward < 10 for reward in rewards)


def test_a_module_that_cannot_be_imported_is_named():
    with pytest.raises(UsageError, match="`no_such_module:Any-v0` cannot be imported"):
        made("no_such_module:Any-v0")
