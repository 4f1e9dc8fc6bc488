"""Proofs of the papers: fixed points of iterated targets, on small random MDPs.

Expectations are exact: every path of n steps from every state, weighed by its probability.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.rl.correct import Retrace, Trajectories, TreeBackup, VTrace

STATES, ACTIONS, STEPS, GAMMA = 3, 2, 3, 0.7


@dataclass(frozen=True)
class Mdp:
    """`moves` [s, a, s'], `rewards` [s, a], and two policies [s, a]; state 0 ends episodes."""

    moves: np.ndarray
    rewards: np.ndarray
    pi: np.ndarray
    mu: np.ndarray
    discounts: np.ndarray  # of arriving in a state

    @staticmethod
    def random(seed):
        rng = np.random.default_rng(seed)
        moves = rng.dirichlet(np.ones(STATES), (STATES, ACTIONS))
        pi, mu = (rng.dirichlet(np.ones(ACTIONS), STATES) * 0.8 + 0.1 for _ in range(2))
        discounts = np.array([0.0] + [GAMMA] * (STATES - 1))
        return Mdp(moves, rng.normal(size=(STATES, ACTIONS)), pi, mu, discounts)

    def action_values(self, policy):
        """Q of a policy, by its linear equations."""
        later = np.einsum("saz,z,zb->sazb", self.moves, self.discounts, policy)
        size = STATES * ACTIONS
        matrix = np.eye(size) - later.reshape(size, size)
        return np.linalg.solve(matrix, self.rewards.ravel()).reshape(STATES, ACTIONS)

    def values(self, policy):
        return (policy * self.action_values(policy)).sum(-1)


@dataclass(frozen=True)
class Paths:
    """Every (state, action, state, ..., state) of STEPS steps, as columns."""

    states: np.ndarray  # [STEPS + 1, paths]
    actions: np.ndarray  # [STEPS, paths]

    @staticmethod
    def all():
        kinds = [range(STATES), range(ACTIONS)] * STEPS + [range(STATES)]
        found = np.array(list(itertools.product(*kinds))).T
        return Paths(found[::2], found[1::2])

    def chances(self, mdp):
        """Probabilities by mu of each step's action [STEPS, paths], and of where it leads."""
        here, there = self.states[:-1], self.states[1:]
        return mdp.mu[here, self.actions], mdp.moves[here, self.actions, there]

    def seen(self, mdp, values, action_values):
        here, there = self.states[:-1], self.states[1:]
        ended = mdp.discounts[there] == 0
        return Trajectories(
            log_pi=np.log(mdp.pi[here, self.actions]),
            log_mu=np.log(mdp.mu[here, self.actions]),
            rewards=mdp.rewards[here, self.actions],
            discounts=mdp.discounts[there],
            follows=(~ended).astype(float),
            values=values[here],
            next_values=values[there],
            action_values=action_values[here, self.actions],
        )


PATHS = Paths.all()


def iterate_values(mdp, corrector, start, times):
    """V <- what targets of the first state are on average."""
    chance = np.prod(PATHS.chances(mdp), axis=(0, 1))
    values = start
    for _ in range(times):
        targets = corrector(PATHS.seen(mdp, values, np.zeros((STATES, ACTIONS))), np)[0]
        values = np.bincount(PATHS.states[0], chance * targets, STATES)
    return values


def iterate_action_values(mdp, corrector, start, times):
    """Q <- what targets of the first state and action are on average."""
    by_mu, by_world = PATHS.chances(mdp)
    chance = np.prod(by_mu[1:], axis=0) * np.prod(by_world, axis=0)
    first = PATHS.states[0] * ACTIONS + PATHS.actions[0]
    found = start
    for _ in range(times):
        values = (mdp.pi * found).sum(-1)
        targets = corrector(PATHS.seen(mdp, values, found), np)[0]
        sums = np.bincount(first, chance * targets, STATES * ACTIONS)
        found = sums.reshape(STATES, ACTIONS)
    return found


def between(mdp, rho):
    """The policy min(rho mu, pi), normalised (equation 3 of the IMPALA paper)."""
    found = np.minimum(rho * mdp.mu, mdp.pi)
    return found / found.sum(-1, keepdims=True)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    rho=st.sampled_from([0.3, 1.0, 2.0, np.inf]),
    share=st.sampled_from([0.4, 1.0]),
)
def test_v_trace_leads_to_the_value_of_the_policy_between(seed, rho, share):
    mdp, corrector = Mdp.random(seed), VTrace(rho, share * min(rho, 5.0))
    wanted = mdp.values(between(mdp, min(rho, 1e9)))
    assert iterate_values(mdp, corrector, wanted, 1) == pytest.approx(wanted, abs=1e-12)
    start = np.random.default_rng(seed).normal(size=STATES)
    assert iterate_values(mdp, corrector, start, 300) == pytest.approx(wanted, abs=1e-9)


def test_v_trace_with_small_rho_learns_another_policy_than_pi():
    mdp = Mdp.random(0)
    found = iterate_values(mdp, VTrace(0.3, 0.3), np.zeros(STATES), 300)
    assert np.abs(found - mdp.values(mdp.pi)).max() > 0.01
    whole = iterate_values(mdp, VTrace(np.inf, 1.0), np.zeros(STATES), 300)
    assert whole == pytest.approx(mdp.values(mdp.pi), abs=1e-9)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    corrector=st.sampled_from(
        [Retrace(), Retrace(0.5), Retrace(0.0), Retrace(0.9, 0.5), TreeBackup(), TreeBackup(0.6)]
    ),
)
def test_retrace_and_tree_backup_lead_to_the_values_of_pi(seed, corrector):
    mdp = Mdp.random(seed)
    wanted = mdp.action_values(mdp.pi)
    assert iterate_action_values(mdp, corrector, wanted, 1) == pytest.approx(wanted, abs=1e-12)
    start = np.random.default_rng(seed).normal(size=(STATES, ACTIONS))
    found = iterate_action_values(mdp, corrector, start, 120)
    assert found == pytest.approx(wanted, abs=1e-9)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), corrector=st.sampled_from([Retrace(), TreeBackup()]))
def test_each_iteration_comes_nearer_by_gamma_at_least(seed, corrector):
    """Theorem 1 of the Retrace paper, in the largest difference."""
    mdp, rng = Mdp.random(seed), np.random.default_rng(seed)
    one, other = rng.normal(size=(2, STATES, ACTIONS))
    after = [iterate_action_values(mdp, corrector, start, 1) for start in (one, other)]
    assert np.abs(after[0] - after[1]).max() <= GAMMA * np.abs(one - other).max() + 1e-12
