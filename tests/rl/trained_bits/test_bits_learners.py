"""Every learner trains its policy in few bits, from its state to the bit."""

import numpy as np
import pytest

from qgraph.errors import UsageError
from qgraph.rl.agents import AGENTS, config_class, config_for
from qgraph.rl.agents.registry import check_fits, learner_for
from qgraph.rl.learn.replay import Batch
from qgraph.rl.trained_bits.policy_graph import calibrated
from tests.helpers.impala import trajectories
from tests.helpers.ppo import rollout
from tests.helpers.rl_records import World, transitions

SMALL = {
    "hidden_sizes": (8, 8), "critic_hidden_sizes": (8,), "batch_size": 20, "minibatch_size": 10,
    "train_bits": 3,
}  # fmt: skip


def world_of(algorithm):
    return World((4,), count=3 if config_class(algorithm).discrete_actions else 0)


def learner_of(algorithm, **more):
    kind = config_class(algorithm)
    usual = {name: value for name, value in SMALL.items() if name in kind.fields()}
    return learner_for(kind("fixed", **{**usual, **more}), world_of(algorithm))


def batches(algorithm, count):
    for seed in range(count):
        if "unroll_length" in config_class(algorithm).fields():
            records = trajectories(seed=seed)
            yield Batch(records, np.arange(records.size), np.ones(records.size, np.float32))
        elif "minibatch_size" in config_class(algorithm).fields():
            yield rollout(n=20, seed=seed)
        else:
            yield transitions(world_of(algorithm), 20, seed)


def begin(learner, batch, rate=0.01):
    weights = {name: v.numpy() for name, v in learner.policy.items()}
    seen = batch.records["observation"].reshape(-1, 4)
    learner.begin_bits(calibrated(learner.program, weights, seen, 3), rate)


@pytest.mark.parametrize("algorithm", AGENTS)
def test_a_learner_continues_in_few_bits_to_the_bit(algorithm):
    first, *rest = batches(algorithm, 3)
    whole = learner_of(algorithm)
    before = {name: v.numpy() for name, v in whole.state.items()}
    whole.step(first)
    begin(whole, first)
    assert {name for name in whole.state if name not in before} == {
        "bits/ranges", "bits/adam/first/ranges", "bits/adam/second/ranges", "bits/adam/powers",
    }  # fmt: skip
    begun = {name: v.numpy() for name, v in whole.state.items()}
    graph = whole.bits.finalized(whole.policy)
    losses = [whole.step(batch)[1] for batch in rest]
    again = learner_of(algorithm, seed=1)
    again.begin_bits(graph, 0.01)
    for name, variable in again.state.items():
        variable.assign(begun[name])
    again.config = whole.config  # for its seed
    assert [again.step(batch)[1] for batch in rest] == losses
    for name, variable in whole.state.items():
        assert np.array_equal(variable, again.state[name]), name
    assert not np.array_equal(whole.bits.quantizers.ranges, begun["bits/ranges"])
    changed = [name for name, v in whole.policy.items() if name.endswith("kernel")]
    assert all(not np.array_equal(whole.policy[n], graph.constant(n)) for n in changed)


@pytest.mark.parametrize("algorithm", AGENTS)
def test_the_policy_in_the_loss_is_the_one_of_few_bits(algorithm):
    """A policy whose codes are all zero has the outputs of its biases, whatever it observes."""
    learner, (batch,) = learner_of(algorithm), batches(algorithm, 1)
    begin(learner, batch)
    floating, rng = learner_of(algorithm), np.random.default_rng(0)
    for name, variable in floating.state.items():  # critics are tiny at first
        if name.startswith("critic"):
            value = rng.normal(size=variable.shape)
            for state in (learner.state, floating.state):
                state[name].assign(value)
    ranges = learner.bits.quantizers.ranges
    ranges.assign(ranges + 20.0)  # steps of codes are larger than all weights
    rounded = learner.bits.rounded(learner.policy)
    assert not any(values.any() for name, values in rounded.items() if name.endswith("kernel"))
    assert learner.step(batch)[1] != floating.step(batch)[1]


@pytest.mark.parametrize(
    ("algorithm", "more", "words"),
    [
        ("dqn", {"dueling": True}, "train_bits and dueling True exclude"),
        ("dqn", {"precision": "mixed_bfloat16"}, "train_bits and precision mixed_bfloat16 exclude"),
        ("sac", {"float16_methods": ("all",)}, "train_bits and float16_methods .* exclude"),
        ("sac", {"significand": 8}, "train_bits and significand 8 exclude"),
        ("impala", {"replicas": 2}, "train_bits and replicas 2 exclude"),
        ("td3", {"compress": "quantize(8)"}, r"train_bits and compress quantize\(8\) exclude"),
        ("td3", {"train_bits_delay": 40_000}, "train_bits_delay is 40000, but steps is only 40000"),
        ("td3", {"train_bits": 16}, "train_bits must be one of 8, 7, 6, 5, 4, 3, 2, not 16"),
        ("td3", {"train_bits": None, "train_bits_delay": 5}, "train_bits_delay needs train_bits"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_refused(algorithm, more, words):
    with pytest.raises(UsageError, match=words):
        config_for(algorithm, "fixed", **{"train_bits": 4, **more})


def test_few_bits_begin_after_half_of_the_steps():
    assert config_for("sac", "fixed", train_bits=4, steps=9000).train_bits_delay == 4500
    assert config_for("sac", "fixed").train_bits_delay is None


def test_images_are_refused():
    config = config_for("dqn", "fixed", train_bits=4)
    with pytest.raises(UsageError, match=r"train_bits is for vectors; `fixed` gives \[20, 20, 3\]"):
        check_fits(config, World((20, 20, 3), np.uint8, count=3))
