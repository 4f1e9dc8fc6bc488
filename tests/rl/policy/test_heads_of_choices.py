"""Heads with several choices, and masks of valid options."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import UsageError
from qgraph.rl.environments import Actions
from qgraph.rl.head import Head
from qgraph.rl.policy.about import head_for
from qgraph.rl.policy.shift import difference_warning, divergences, frequencies, shift

MULTI, SWITCHES = Head("multi_categorical", choices=(3, 2)), Head("bernoulli", choices=(2, 2))


def outputs(n=50, m=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, m)).astype(np.float32)


def test_each_choice_is_the_largest_of_its_own_outputs():
    x = outputs()
    found = MULTI.actions(x)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.stack([x[:, :3].argmax(1), x[:, 3:].argmax(1)], 1))
    np.testing.assert_array_equal(SWITCHES.actions(x[:, :2]), x[:, :2] > 0)


@given(st.integers(0, 10_000), st.sampled_from(["argmax", "categorical", "multi_categorical"]))
def test_masked_actions_are_the_best_of_the_valid_ones(seed, kind):
    rng = np.random.default_rng(seed)
    head = Head(kind, choices=(3, 2) if kind == "multi_categorical" else (), masks=True)
    x, masks = rng.normal(size=(4, 5)), rng.random((4, 5)) < 0.5
    for part in head.parts(masks):
        part[:, 0] |= ~part.any(1)
    for drawn in (None, rng):
        found = head.actions(x, drawn, masks).reshape(4, -1)
        for row, actions in enumerate(found):
            for values, valid, action in zip(
                head.parts(x[row : row + 1]), head.parts(masks[row : row + 1]), actions, strict=True
            ):
                assert valid[0, action]
                if drawn is None:
                    assert values[0, action] == values[0][valid[0]].max()


def test_draws_follow_the_distribution():
    rng, x = np.random.default_rng(0), np.float64([[0.3, -1.0, 0.5, 1.0, -0.5]])
    found = MULTI.actions(np.repeat(x, 20_000, 0), rng)
    for column, part in zip(found.T, MULTI.parts(x), strict=True):
        share = np.exp(part[0]) / np.exp(part[0]).sum()
        np.testing.assert_allclose(np.bincount(column) / 20_000, share, atol=0.015)
    found = SWITCHES.actions(np.repeat(x[:, :2], 20_000, 0), rng).mean(0)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-x[0, :2])), atol=0.015)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"kind": "multi_categorical"}, "number of options"),
        ({"kind": "argmax", "choices": (2,)}, "has no choices"),
        ({"kind": "bernoulli", "choices": (2, 3)}, "cannot have choices"),
        ({"kind": "multi_categorical", "choices": (2, 0)}, "cannot have choices"),
        ({"kind": "clip", "low": (-1.0,), "high": (1.0,), "masks": True}, "cannot have masks"),
        ({"kind": "bernoulli", "choices": (2,), "masks": True}, "cannot have masks"),
    ],
)
def test_heads_that_do_not_fit_together_are_refused(how, told):
    with pytest.raises(UsageError, match=told):
        Head(**how)


@pytest.mark.parametrize(
    ("masks", "told"),
    [(np.zeros((2, 5)), "no valid action"), (np.ones((2, 4)), "do not fit"),
     (np.float32([[1, 1, 1, 0, 0]] * 2), "no valid action")],
)  # fmt: skip
def test_masks_that_do_not_fit_are_refused(masks, told):
    with pytest.raises(UsageError, match=told):
        MULTI.actions(outputs(2), None, masks)


def test_heads_come_back_from_json_and_former_files_are_read():
    masked = Head("multi_categorical", choices=(3, 2), masks=True)
    for head in (MULTI, SWITCHES, masked, Head("categorical", masks=True)):
        assert Head.from_json(head.as_json()) == head
    assert set(Head("argmax").as_json()) == {"kind", "low", "high", "log_std"}


def test_the_head_of_an_environment_with_choices():
    actions = Actions(choices=(2, 2))
    assert head_for(actions, 2, None) == SWITCHES
    assert head_for(actions, 4, None) == Head("multi_categorical", choices=(2, 2))
    with pytest.raises(UsageError, match="choices of 3, 2 options"):
        head_for(actions, 5, None, None, MULTI)
    with pytest.raises(UsageError, match="chooses one of several"):
        head_for(actions, 4, "argmax")


def test_differences_of_choices_are_measured():
    x = outputs(200)
    y = x.copy()
    y[:50, 3:] = y[:50, :2:-1]  # other second choices, if the two are not equal
    found = shift(MULTI, x, y)
    assert found.same_action == 0.75 and found.kl_actions >= 0 and found.kl_policy > 0
    assert "75.0%" in (difference_warning(MULTI, x, y) or "")
    assert frequencies(MULTI, MULTI.actions(x), 5).sum(1).tolist() == [200, 200]
    same = shift(SWITCHES, x[:, :2], x[:, :2])
    assert (same.same_action, same.kl_actions, same.kl_policy) == (1.0, 0.0, 0.0)


def test_divergences_are_those_of_the_whole_distribution():
    """They are those of all combinations of choices, whose probabilities are products."""
    x, y = outputs(6), outputs(6, seed=1)
    parts = [MULTI.parts(z) for z in (x, y)]
    softmax = [[np.exp(p) / np.exp(p).sum(1, keepdims=True) for p in each] for each in parts]
    p, q = (np.einsum("ni,nj->nij", *each).reshape(6, -1) for each in softmax)
    np.testing.assert_allclose(divergences(MULTI, x, y), (p * np.log(p / q)).sum(1), rtol=1e-5)
    ons = [1 / (1 + np.exp(-z[:, :2].astype(float))) for z in (x, y)]
    both = [np.stack([on, 1 - on], -1) for on in ons]
    p, q = (np.einsum("ni,nj->nij", *each.transpose(1, 0, 2)).reshape(6, -1) for each in both)
    found = divergences(SWITCHES, x[:, :2], y[:, :2])
    np.testing.assert_allclose(found, (p * np.log(p / q)).sum(1), rtol=1e-5)
