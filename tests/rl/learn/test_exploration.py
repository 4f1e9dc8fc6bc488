"""Exploration: what actors do with the outputs of the policy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import RunError
from qgraph.rl.head import Head
from qgraph.rl.learn.exploration import Categorical, Epsilon, Noise, SquashedGaussian

LOGITS = st.lists(st.floats(-200, 200, width=32), min_size=1, max_size=18)


@given(LOGITS, st.integers(0, 2**32))
def test_the_log_probability_of_an_action_that_is_drawn(numbers, seed):
    logits = np.array(numbers, np.float32)
    drawn = Categorical().choose(logits, 0, np.random.default_rng(seed))
    exact = logits.astype(np.longdouble)
    expected = exact[drawn.action] - np.logaddexp.reduce(exact)
    assert drawn.sent == drawn.action
    assert abs(drawn.log_probability - expected) <= 1e-12 * max(1, abs(expected))
    assert drawn.log_probability > -746  # what no double can be drawn with is not


def test_actions_are_drawn_with_the_probabilities_of_the_policy():
    logits, rng, draws = np.array([0, 1, -1, 2.5], np.float32), np.random.default_rng(0), 20000
    drawn = [Categorical().choose(logits, 0, rng).action for _ in range(draws)]
    expected = np.exp(logits - np.logaddexp.reduce(logits))
    found = np.bincount(drawn, minlength=4) / draws
    assert (abs(found - expected) < 5 * np.sqrt(expected * (1 - expected) / draws)).all()


SCALED = Head("scale", (-1.0,) * 4, (1.0,) * 4)


@pytest.mark.parametrize(
    "explore",
    [Categorical(), Epsilon(0.0, 0), Noise(0.1, SCALED), SquashedGaussian(SCALED)],
    ids=lambda explore: type(explore).__name__,
)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_outputs_that_are_not_finite_are_reported(explore, bad, place):
    outputs = np.zeros(4, np.float32)
    outputs[place] = bad
    with pytest.raises(RunError, match="outputs that are not finite"):
        explore.choose(outputs, 1, np.random.default_rng(0))
