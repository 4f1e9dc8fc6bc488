"""Policies at play with fewer bits."""

import json

import numpy as np
import pytest

from qgraph.errors import LoadError, UsageError
from qgraph.rl.head import Head
from qgraph.rl.policy import play as playing
from qgraph.rl.policy import read_policy
from qgraph.rl.policy.about import About, about, head_for
from qgraph.rl.policy.affine import Simulated
from qgraph.rl.policy.play import Returns, play, watch
from qgraph.rl.policy.shift import divergence, shift
from qgraph.rl.policy.study import forms, study
from tests.helpers.playing import LENGTH, Chase, chaser


def policy(discrete=True):
    network = read_policy(chaser(discrete))
    return network.program, network.weights


def test_episodes_depend_on_their_seeds_alone(made, monkeypatch):
    """Also in environments that keep something over a reset, as those of Box2D do."""
    program, weights = policy()
    reset = Chase.reset

    def worn(self, seed=None):
        reset(self, seed)
        self.resets = getattr(self, "resets", 0) + 1
        self.at += self.resets
        return self._seen()

    monkeypatch.setattr(Chase, "reset", worn)
    one = Simulated(program, weights)
    many = play("Chase", one, Head("argmax"), range(100))
    few = play("Chase", one, Head("argmax"), range(90, 95))
    assert many.each[90:95].tolist() == few.each.tolist()
    assert many.steps.tolist() == [LENGTH] * 100
    assert len(made) == 100 + 5 and all(one.closed for one in made)


def test_a_policy_that_is_less_sure_of_the_same_actions_loses_where_they_are_drawn(made):
    one = Simulated(*policy())

    def mean(sure, rng=None):
        def outputs(seen):
            return sure * one(seen)

        return play("Chase", outputs, Head("categorical"), range(40), rng=rng).mean

    def drawn(sure):
        return mean(sure, np.random.default_rng(3))

    assert mean(1.0) == mean(1e-3)
    assert drawn(1e-3) < drawn(1.0) <= mean(1.0)
    assert drawn(1.0) == drawn(1.0)


def test_environments_are_closed_after_an_error(made):
    def broken(seen):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        play("Chase", broken, Head("argmax"), range(3))
    assert all(one.closed for one in made)


def test_observations_of_a_policy_continue_over_episodes(made):
    seen = watch("Chase", Simulated(*policy()), Head("argmax"), 2 * LENGTH + 3)
    assert seen.shape == (2 * LENGTH + 3, 2) and seen.dtype == np.float32
    assert np.abs(seen[LENGTH - 3 : LENGTH, 0]).max() < 0.5 and made[0].closed


def test_change_is_paired():
    before = Returns(np.array([10.0, 20.0, 30.0]), np.ones(3))
    after = Returns(before.each - 2, np.ones(3))
    assert after.change_from(before) == (-0.1, 0.0)


def test_float_is_compared_with_fewer_bits_in_every_way(made):
    network = read_policy(chaser())
    made = forms(network, [32, 8, 2])
    found = study(Simulated(*policy()), made, Head("categorical"), "Chase", episodes=5, steps=60)
    assert [(row.way, row.bits) for row in found.rows] == [
        (way, bits) for way in ("papers", "weights", "actor") for bits in (8, 2)
    ]
    eight, two = found.rows[:2]
    assert abs(eight.change) < 0.02 and eight.shift.same_action > 0.9
    assert two.shift.kl_policy > eight.shift.kl_policy > 0
    assert all(row.frequencies.sum() == 60 for row in found.rows)
    json.dumps(found.as_json())


def test_bits_that_nothing_is_packed_in_are_simulated(made):
    network, ways = read_policy(chaser()), ("papers", "actor", "static")
    found = forms(network, [32, 16, 12, 8], ways, Head("argmax"), "Chase")
    assert [(form.way, form.bits) for form in found] == [
        ("papers", 16), ("papers", 12), ("papers", 8), ("actor", 16), ("actor", 8), ("static", 8),
    ]  # fmt: skip


def test_a_static_form_is_calibrated_where_it_acts(made):
    network, head = read_policy(chaser()), Head("argmax")
    (form,) = forms(network, [16, 8], ["static"], head, "Chase")
    assert (form.way, form.bits) == ("static", 8)
    seen = np.random.default_rng(0).normal(0, 2, (200, 2)).astype("f")
    wanted = Simulated(network.program, network.weights)(seen)
    assert (form.policy(seen).argmax(1) == wanted.argmax(1)).mean() > 0.97


def test_continuous_actions_are_counted_in_bins(made):
    head = Head("clip", (-1.0,), (1.0,))
    one, made = Simulated(*policy(False)), forms(read_policy(chaser(False)), [4], ["papers"])
    found = study(one, made, head, "Pull", episodes=3, steps=50)
    (row,) = found.rows
    assert row.frequencies.shape == (1, 32) and row.shift.kl_policy is None


def test_divergence_of_equal_and_of_moved_policies():
    assert divergence(np.array([3, 4]), np.array([3, 4])) == 0
    p, q = np.array([3.5, 0.5]) / 4, np.array([2.5, 1.5]) / 4
    assert divergence(np.array([3, 0]), np.array([2, 1])) == pytest.approx(
        (p * np.log(p / q)).sum()
    )
    logits = np.log(np.array([[0.5, 0.5], [0.9, 0.1]]))
    moved = np.log(np.array([[0.25, 0.75], [0.9, 0.1]]))
    wanted = 0.5 * (0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75))
    assert shift(Head("categorical"), logits, moved).kl_policy == pytest.approx(wanted)
    assert shift(Head("categorical"), logits + 3, logits).kl_policy == pytest.approx(0)


def test_divergence_of_gaussians():
    means = np.array([[0.0], [0.2]])
    head = Head("gaussian", (-1.0,), (1.0,), (np.log(0.5),))
    assert shift(head, means, means + 0.1).kl_policy == pytest.approx(0.1**2 / (2 * 0.25))
    head = Head("squashed_gaussian", (-1.0,), (1.0,))
    wanted, found = np.array([[0.0, 0.0]]), np.array([[0.0, np.log(2.0)]])
    assert shift(head, wanted, found).kl_policy == pytest.approx(np.log(2) + 1 / 8 - 0.5)
    assert shift(head, wanted, wanted).kl_policy == pytest.approx(0)


def test_a_file_beside_the_policy_names_its_environment_and_head(tmp_path):
    said = {"env": "E-v1", "algorithm": "ddpg", "action": "times high", "action_high": 2.0}
    (tmp_path / "p.json").write_text(json.dumps(said))
    assert about(tmp_path / "p.pb") == About("E-v1", "scale", 2.0, 0)
    said.update(algorithm="ppo2", action="argmax over the outputs", action_high=None)
    (tmp_path / "p.json").write_text(json.dumps({**said, "first_seed": 7}))
    assert about(tmp_path / "p.pb") == About("E-v1", "categorical", None, 7)
    assert about(tmp_path / "q.pb") == About()


def test_heads_follow_the_environment():
    numbers, choice = Chase(False).actions, Chase(True).actions
    assert head_for(choice, 3, None) == Head("argmax")
    assert head_for(numbers, 1, None) == Head("clip", (-1.0,), (1.0,))
    assert head_for(numbers, 1, "scale", 2.0) == Head("scale", (-2.0,), (2.0,))
    for actions, outputs, kind in ((choice, 3, "clip"), (choice, 4, None), (numbers, 1, "argmax")):
        with pytest.raises(UsageError):
            head_for(actions, outputs, kind)


@pytest.mark.parametrize("high", [0.0, -1.0, np.nan, np.inf])
def test_a_range_of_actions_that_is_empty_or_infinite_is_refused(high):
    with pytest.raises(UsageError, match="cannot range from"):
        head_for(Chase(False).actions, 1, "scale", high)


@pytest.mark.parametrize(
    ("low", "high", "log_std"),
    [
        ((1.0,), (-1.0,), ()),
        ((np.nan,), (1.0,), ()),
        ((1.0,), (), ()),
        ((0.0,), (1.0,), (0.0,) * 2),
    ],
)
def test_bounds_of_a_head_that_do_not_fit_together_are_refused(low, high, log_std):
    with pytest.raises(UsageError, match=r"range of actions|as many low"):
        Head("gaussian", low, high, log_std)


def test_actions_without_bounds_are_compared_in_their_own_range():
    head = Head("gaussian", (-np.inf, -1.0), (np.inf, 1.0), (0.0, 0.0))
    wanted = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    moved = wanted + np.array([5.0, 0.0])
    assert shift(head, wanted, wanted).same_action == 1
    found = shift(head, wanted, moved)
    assert found.same_action == 0 and found.kl_actions > 0.5


def test_infinite_bounds_of_an_exported_head_are_those_of_the_environment():
    whole = Head("gaussian", (-np.inf,), (np.inf,), (0.5,))
    found = head_for(Chase(False).actions, 1, None, exported_head=whole)
    assert found == Head("gaussian", (-1.0,), (1.0,), (0.5,))


def test_a_negative_seed_beside_the_policy_is_an_error(tmp_path):
    (tmp_path / "p.json").write_text(json.dumps({"env": "E-v1", "first_seed": -3}))
    with pytest.raises(LoadError, match="first_seed is -3"):
        about(tmp_path / "p.pb")


def test_environments_made_before_a_failing_one_are_closed(made, monkeypatch):
    make = playing.make

    def third_fails(name):
        if len(made) == 2:
            raise UsageError("no more")
        return make(name)

    monkeypatch.setattr(playing, "make", third_fails)
    with pytest.raises(UsageError, match="no more"):
        play("Chase", Simulated(*policy()), Head("argmax"), range(3))
    assert len(made) == 2 and all(one.closed for one in made)
