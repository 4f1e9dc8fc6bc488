"""Corrected targets against the papers' sums, TRFL's numbers, and what they reduce to."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import UnsupportedError, UsageError
from qgraph.rl.correct import (
    Correction,
    ImportanceSampling,
    Retrace,
    Trajectories,
    TreeBackup,
    VTrace,
    reference,
)

CORRECTORS = {
    "vtrace": (VTrace(), reference.vtrace),
    "vtrace(2, 0.7)": (VTrace(2, 0.7), lambda steps: reference.vtrace(steps, 2, 0.7)),
    "is(1.5)": (ImportanceSampling(1.5), lambda steps: reference.importance(steps, 1.5)),
    "retrace": (Retrace(), reference.retrace),
    "retrace(0.8, 2)": (Retrace(0.8, 2), lambda steps: reference.retrace(steps, 0.8, 2)),
    "tree_backup(0.9)": (TreeBackup(0.9), lambda steps: reference.tree_backup(steps, 0.9)),
}


def trajectories(seed, n=5, b=3, dtype=np.float64, on_policy=False):
    """With ends of both kinds: those for good, and those that only cut an episode."""
    rng = np.random.default_rng(seed)
    follows = rng.random((n, b)) < 0.8
    discounts = np.where(~follows & (rng.random((n, b)) < 0.5), 0.0, 0.9)
    values, next_values = rng.normal(size=(2, n, b))
    next_values[:-1] = np.where(follows[:-1], values[1:], next_values[:-1])
    log_pi, log_mu = np.log(rng.uniform(0.05, 1, (2, n, b)))
    found = Trajectories(
        log_pi, log_pi if on_policy else log_mu, rng.normal(size=(n, b)), discounts,
        follows.astype(float), values, next_values, rng.normal(size=(n, b)),
    )  # fmt: skip
    return Trajectories(**{name: part.astype(dtype) for name, part in vars(found).items()})


def tensors(steps):
    return Trajectories(**{name: tf.constant(part) for name, part in vars(steps).items()})


@pytest.mark.parametrize("name", CORRECTORS)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 7))
def test_the_recursion_is_the_papers_sum(name, seed, n):
    corrector, wanted = CORRECTORS[name]
    steps = trajectories(seed, n)
    assert corrector(steps, np) == pytest.approx(wanted(steps), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", [*CORRECTORS, "vtrace,is", "none", "is,retrace(lambda=0.5)"])
def test_tensors_are_corrected_as_arrays_are(name):
    steps = trajectories(1, dtype=np.float32)
    correct = Correction.parse(name)
    found = tf.function(lambda: vars(correct(tensors(steps), tf)))()
    for part, wanted in vars(correct(steps)).items():
        assert found[part].dtype == tf.float32
        assert found[part].numpy() == pytest.approx(wanted, rel=1e-5, abs=1e-5), part


@given(seed=st.integers(0, 10_000))
def test_without_correction_targets_are_returns_of_n_steps(seed):
    steps = trajectories(seed)
    found, wanted = Correction()(steps), reference.n_step(steps)
    assert found.targets == pytest.approx(wanted, rel=1e-12, abs=1e-12)
    assert (found.weights == 1).all()
    assert found.advantages == pytest.approx(wanted - steps.values, rel=1e-12, abs=1e-12)


@given(seed=st.integers(0, 10_000))
def test_on_policy_v_trace_is_returns_of_n_steps(seed):
    steps = trajectories(seed, on_policy=True)
    found, wanted = Correction.parse("vtrace,is")(steps), Correction()(steps)
    for name, part in vars(wanted).items():
        assert getattr(found, name) == pytest.approx(part, rel=1e-12, abs=1e-12), name


@given(seed=st.integers(0, 10_000))
def test_on_policy_retrace_is_the_return_less_what_was_expected_of_later_actions(seed):
    """Written out for lambda = 1: rewards, and V - Q of each state after the first."""
    steps = trajectories(seed, on_policy=True)
    found = Retrace()(steps, np)
    wanted, rows = np.zeros_like(found), len(found)
    for s, b in np.ndindex(found.shape):
        discount = 1.0
        for t in range(s, rows):
            if t > s:
                wanted[s, b] += discount * (steps.values[t, b] - steps.action_values[t, b])
            wanted[s, b] += discount * steps.rewards[t, b]
            discount *= steps.discounts[t, b]
            if t == rows - 1 or not steps.follows[t, b]:
                wanted[s, b] += discount * steps.next_values[t, b]
                break
    assert found == pytest.approx(wanted, rel=1e-12, abs=1e-12)


def test_without_limits_v_trace_weighs_by_whole_ratios():
    steps = trajectories(2)
    found = VTrace(np.inf, np.inf)(steps, np)
    t, ratios = len(found) - 2, np.exp(steps.log_pi - steps.log_mu)
    errors = steps.rewards + steps.discounts * steps.next_values - steps.values
    traced = steps.follows[t] * steps.discounts[t] * ratios[t] * ratios[t + 1] * errors[t + 1]
    assert found[t] == pytest.approx(steps.values[t] + ratios[t] * errors[t] + traced)


def test_one_step_where_lambda_is_zero():
    steps = trajectories(3)
    wanted = steps.rewards + steps.discounts * steps.next_values
    assert Retrace(0.0)(steps, np) == pytest.approx(wanted)
    assert TreeBackup(0.0)(steps, np) == pytest.approx(wanted)


def of_trfl(**more):
    log_pi = [[-0.2, -1.4], [-0.9, -0.3], [-2.1, -0.7], [-0.4, -1.1]]
    log_mu = [[-0.8, -0.6], [-0.5, -1.2], [-1.3, -1.3], [-0.9, -0.2]]
    values = np.array([[0.4, 1.1], [-0.6, 0.2], [1.3, -0.9], [0.8, 0.5], [2.0, -0.4]])
    discounts = np.array([[0.9, 0.8], [0.9, 0.0], [0.95, 0.9], [0.7, 0.99]])
    parts = {
        "log_pi": np.array(log_pi),
        "log_mu": np.array(log_mu),
        "rewards": np.array([[1, -0.5], [0.3, 2], [-1.2, 0.7], [0.6, 1.5]]),
        "discounts": discounts,
        "follows": (discounts > 0).astype(float),
        "values": values[:4],
        "next_values": values[1:],
    }
    return Trajectories(**{**parts, **more})


def test_v_trace_has_the_numbers_of_trfl():
    """`vtrace_from_importance_weights` of trfl 1.2.0, which clips c at 1."""
    for rho, targets, advantages in (
        (
            1.0,
            [[1.5624260, 1.1], [0.6249179, 2.0], [1.0304025, 1.3710111], [2.0, 0.7455680]],
            [[1.1624261, 0.0], [1.2249177, 1.8], [-0.2695974, 2.2710111], [1.2, 0.2455680]],
        ),
        (
            1.5,
            [[1.7314874, 1.4235168], [0.7794305, 2.9], [1.2865201, 2.3960109], [2.6, 0.7455680]],
            [[1.9522312, 0.3235168], [1.3794303, 2.7], [-0.0134799, 3.4065166], [1.8, 0.2455680]],
        ),
    ):
        found = Correction.parse(f"is({rho}),vtrace({rho})")(of_trfl())
        assert found.targets == pytest.approx(np.array(targets), abs=2e-6)
        assert found.weights * found.advantages == pytest.approx(np.array(advantages), abs=2e-6)


def of_actions():
    q = [
        [[0.4, 1.1], [-0.6, 0.2]], [[1.3, -0.9], [0.8, 0.5]], [[-0.2, 0.7], [1.6, -1.1]],
        [[0.9, 0.1], [-0.3, 2.2]], [[0.6, -0.8], [1.4, 0.3]],
    ]  # fmt: skip
    pi = [
        [[0.3, 0.7], [0.6, 0.4]], [[0.2, 0.8], [0.5, 0.5]], [[0.9, 0.1], [0.35, 0.65]],
        [[0.45, 0.55], [0.75, 0.25]], [[0.15, 0.85], [0.8, 0.2]],
    ]  # fmt: skip
    mu = np.array([[0.5, 0.25], [0.6, 0.7], [0.4, 0.5], [0.9, 0.3]])
    actions = np.array([[0, 1], [1, 0], [0, 0], [1, 1]])[..., None]
    values = (np.array(pi) * q).sum(-1)
    return of_trfl(
        log_pi=np.log(np.take_along_axis(np.array(pi)[:4], actions, -1)[..., 0]),
        log_mu=np.log(mu),
        values=values[:4],
        next_values=values[1:],
        action_values=np.take_along_axis(np.array(q)[:4], actions, -1)[..., 0],
    )


def test_retrace_has_the_numbers_of_trfl():
    """The targets of `retrace_core` of trfl 1.2.0, with lambda 0.9; rlax 0.1.9 has them too."""
    wanted = [
        [1.1382504, 0.6371429], [-0.2182094, 2.0], [-0.7175425, 1.3085351], [0.1870000, 2.6682000]
    ]  # fmt: skip
    assert Retrace(0.9)(of_actions(), np) == pytest.approx(np.array(wanted), abs=2e-6)


def test_tree_backup_has_the_numbers_of_rlax():
    """`general_off_policy_returns_from_action_values` of rlax 0.1.9, where c is lambda times pi."""
    for trace, wanted in (
        (1.0, [[1.0768892, 0.5], [-0.2182094, 2.0], [-0.7175425, 1.0978450], [0.187, 2.6682]]),
        (0.9, [[1.0528177, 0.452], [-0.1796023, 2.0], [-0.7220882, 1.0873105], [0.187, 2.6682]]),
    ):
        assert TreeBackup(trace)(of_actions(), np) == pytest.approx(np.array(wanted), abs=2e-7)


def test_the_order_does_not_matter():
    steps = trajectories(4)
    one, other = (Correction.parse(text)(steps) for text in ("vtrace,is", "is,vtrace"))
    for name, part in vars(one).items():
        assert np.array_equal(part, getattr(other, name)), name


def test_advantages_are_those_of_the_papers():
    steps = trajectories(5)
    states = Correction((VTrace(),))(steps)
    wanted = reference.advantages_of_states(steps, states.targets)
    assert states.advantages == pytest.approx(wanted, rel=1e-12, abs=1e-12)
    actions = Correction((Retrace(),))(steps)
    assert np.array_equal(actions.advantages, actions.targets - steps.values)


@dataclass(frozen=True)
class Halved:
    """A corrector as a user writes one."""

    corrects: ClassVar[str] = "weights"
    of_actions: ClassVar[bool] = False

    most: float = 1.0

    def __call__(self, steps, xp):
        return xp.minimum(steps.ratios(xp), self.most) / 2


def test_a_corrector_of_ones_own():
    steps = trajectories(6)
    mine = Correction.parse(f"vtrace, {__name__}.Halved(0.5)")
    assert mine.links == (VTrace(), Halved(0.5))
    found = mine(steps)
    assert found.weights == pytest.approx(np.minimum(np.exp(steps.log_pi - steps.log_mu), 0.5) / 2)
    assert np.array_equal(found.targets, VTrace()(steps, np))


def in_a_graph(correct, steps):
    return tf.function(lambda: vars(correct(tensors(steps), tf)), autograph=False)()


@pytest.mark.parametrize(
    "corrected",
    [
        lambda correct, steps: correct(steps),
        lambda correct, steps: correct(tensors(steps), tf),
        in_a_graph,
    ],
)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RaisesToCorrect", "` failed: key 'a mistake of its author' is missing"),
        ("OfOneStep", r"` gives targets of shape \[3\], but steps have \[5, 3\]"),
    ],
)
def test_errors_of_a_custom_corrector_name_it(corrected, name, said):
    corrector = f"tests.helpers.plain_links.{name}"
    with pytest.raises(UnsupportedError, match=f"^`{corrector}{said}"):
        corrected(Correction.parse(corrector), trajectories(6))


def test_text_says_constants():
    wanted = (VTrace(2, 1.5), Retrace(0.5), ImportanceSampling(np.inf), TreeBackup(0.9))
    texts = ("vtrace(2, c=1.5)", "retrace( lambda = 0.5 )", "is(inf)", "tree_backup(0.9)")
    for text, link in zip(texts, wanted, strict=True):
        assert Correction.parse(text).links == (link,)
    assert Correction.parse("is(2) , vtrace(rho=3,c=1)").links == (
        ImportanceSampling(2),
        VTrace(3, 1),
    )
    assert Correction.parse("none") == Correction()
    assert Correction.parse("retrace,is").of_actions and not Correction.parse("is").of_actions


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vtrac", "unknown corrector `vtrac`"),
        ("vtrace(rho=0)", "rho is 0, but must be above 0"),
        ("vtrace(c=-1)", "c is -1, but must be above 0"),
        ("is(nan)", "rho is nan"),
        ("vtrace(1, 2)", "c is 2, above rho, 1"),
        ("retrace(1.5)", "lambda is 1.5, but must be in 0..1"),
        ("vtrace(one)", "`one` is not a number"),
        ("vtrace(a=1)", "vtrace does not take"),
        ("vtrace,,is", "not a list of correctors"),
        ("vtrace,", "not a list of correctors"),
        ("vtrace, ", "not a list of correctors"),
        ("", "not a list of correctors"),
        (" ", "not a list of correctors"),
        ("vtrace(1", "not a list of correctors"),
        ("vtrace,retrace", "VTrace and Retrace both correct targets"),
        ("is,is", "both correct weights"),
        ("nowhere.at.all.Mine", "cannot be imported"),
        ("math.Mine", "cannot be imported"),
        (".is", "cannot be imported"),
        ("tests.helpers.broken.Mine", "cannot be imported: division by zero"),
        ("tests.helpers.plain_links.NotMade", "` failed: a mistake of its author"),
        ("os.getcwd", "is not a corrector: it corrects None"),
        ("collections.OrderedDict", "is not a corrector"),
        ("tests.helpers.plain_links.NoTarget", "is not a corrector: it corrects weight"),
        ("tests.helpers.plain_links.OfWhat", "does not define `of_actions`"),
    ],
)
def test_an_invalid_correction_is_reported(text, said):
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        Correction.parse(text)


@pytest.mark.parametrize("text", ["vtrace", "is", "retrace"])
def test_without_log_probabilities_of_actors_nothing_is_corrected(text):
    steps = replace(trajectories(7), log_mu=None)
    with pytest.raises(
        UsageError, match=f"`{text}`: the log probabilities of the policy that acted"
    ):
        Correction.parse(text)(steps)
    assert np.isfinite(Correction.parse("tree_backup")(steps).targets).all()


@pytest.mark.parametrize("text", ["vtrace", "is", "retrace"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_log_probabilities_that_are_not_finite_are_reported(text, value):
    steps = trajectories(7)
    steps.log_mu[0, 0] = value
    with pytest.raises(UsageError, match="is not finite"):
        Correction.parse(text)(steps)


def test_values_of_actions_are_asked_for():
    steps = replace(trajectories(8), action_values=None)
    with pytest.raises(UsageError, match="the corrector needs values of actions"):
        Correction.parse("retrace")(steps)


def test_a_corrector_of_weights_needs_no_of_actions():
    steps = trajectories(9)
    assert (Correction.parse("tests.helpers.plain_links.Ones")(steps).weights == 1).all()
