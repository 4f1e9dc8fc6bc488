"""Scripts from before the agents had folders still find the function that makes a config."""

import inspect

import pytest

from qgraph.cli.rl.train import train
from qgraph.errors import UsageError
from qgraph.rl.agents.registry import config_for
from qgraph.rl.learn.options import options_for

EARLIER = ("critic", "gamma", "capacity", "atoms", "least", "value_limit", "tau", "target_period")


def test_earlier_names_make_the_same_config():
    assert options_for("dqn", "CartPole-v1", gamma=0.5) == config_for(
        "dqn", "CartPole-v1", discount=0.5
    )


@pytest.mark.parametrize("given", [{"reward_scale": 0.0}, {"entropy": -1.0}, {"nonsense": 3}])
def test_nonsense_is_refused(given):
    with pytest.raises(UsageError):
        options_for("impala", "CartPole-v1", **given)


def test_the_command_takes_earlier_names():
    assert {*EARLIER, "explore", "explore_steps"} <= set(inspect.signature(train).parameters)
