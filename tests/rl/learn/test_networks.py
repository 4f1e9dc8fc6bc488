"""The learner's network and the actor's are one."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.choices import CellKind
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.agents.d4pg.learner import project
from qgraph.rl.learn.frozen import write_policy
from qgraph.rl.learn.networks import initial_weights, network, recurrent_actor_critic
from qgraph.rl.learn.tensors import run
from qgraph.rl.policy import read_policy
from qgraph.rl.policy.about import about

NETWORKS = {
    "plain": network((5,), (16, 8), 3),
    "tanh": network((5,), (16, 8), 3, last="tanh"),
    "dueling": network((5,), (16,), 4, dueling=True),
    "norm": network((5,), (16, 8), 2, activation="elu", layer_norm=True),
    "frames": network((84, 84, 4), (32,), 6, dueling=True),
    "small frames": network((10, 10, 4), (32,), 3),
}


def actor(program, weights):
    return Actor(Packer(program, bits=32).pack(weights))


@pytest.mark.parametrize("program", NETWORKS.values(), ids=NETWORKS)
def test_learner_and_actor_compute_the_same(program):
    rng = np.random.default_rng(0)
    weights = initial_weights(program, rng)
    weights = {k: v + rng.normal(0, 0.1, v.shape).astype("f4") for k, v in weights.items()}
    images = len(program.shape) == 3
    x = (
        rng.integers(0, 256, (3, *program.shape)).astype("u1")
        if images
        else rng.normal(size=(3, *program.shape)).astype("f4")
    )
    if images:
        weights["scaled/scale"] = np.full(4, 1 / 255, "f4")
    wanted = run(program, weights, x).numpy()
    found = actor(program, weights)(x)
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    half = run(program, weights, x, bfloat16=True).numpy()
    assert half.dtype == np.float32
    assert 0 < np.abs(half - wanted).max() < 0.1 * max(1, np.abs(wanted).max())


@pytest.mark.parametrize("program", NETWORKS.values(), ids=NETWORKS)
def test_a_written_policy_is_read_as_what_was_learnt(program, tmp_path):
    weights = initial_weights(program, np.random.default_rng(0))
    write_policy(tmp_path / "policy.pb", program, weights, {"env": "CartPole-v1"})
    read = read_policy(tmp_path / "policy.pb")
    x = np.random.default_rng(1).normal(size=(3, *program.shape)).astype("f4")
    found = actor(read.program, read.weights)(x)
    assert found == pytest.approx(actor(program, weights)(x), rel=1e-4, abs=1e-5)
    assert about(tmp_path / "policy.pb").environment == "CartPole-v1"


@pytest.mark.parametrize(
    "program",
    [NETWORKS["dueling"], recurrent_actor_critic((5,), (8,), 3, CellKind.LSTM, 4).policy],
    ids=["dueling", "lstm"],
)
def test_the_same_weights_make_the_same_file(program, tmp_path):
    """TensorFlow gives the nodes of a function another order each time, even the inputs."""
    rng = np.random.default_rng(0)
    weights = {k: rng.normal(size=s).astype("f4") for k, s in program.weight_shapes.items()}
    path, files = tmp_path / "policy.pb", set()
    for _ in range(10):
        write_policy(path, program, weights, {})
        files.add(path.read_bytes())
    assert len(files) == 1
    states = [state.name for state in program.states]
    inputs = [
        n.name for n in tf.compat.v1.GraphDef.FromString(*files).node if n.op == "Placeholder"
    ]
    assert inputs == ["observation", *states]


def test_advantages_have_no_mean_of_their_own():
    program = NETWORKS["dueling"]
    weights = initial_weights(program, np.random.default_rng(0))
    x = np.ones((1, 5), "f4")
    before = actor(program, weights)(x)
    shifted = {**weights, "advantage/bias": weights["advantage/bias"] + 3}
    assert actor(program, shifted)(x) == pytest.approx(before, abs=1e-5)


def test_projection_keeps_mass_and_mean():
    values = np.linspace(-10, 10, 11).astype("f4")
    rng = np.random.default_rng(0)
    weight = rng.dirichlet(np.ones(11), 6).astype("f4")
    at = rng.uniform(-9, 9, (6, 11)).astype("f4")
    found = project(tf.constant(at), tf.constant(weight), values).numpy()
    assert found.sum(-1) == pytest.approx(np.ones(6), rel=1e-5)
    assert found @ values == pytest.approx((at * weight).sum(-1), abs=1e-4)


def test_projection_beyond_the_ends_goes_to_the_ends():
    values = np.array([-1, 0, 1], "f4")
    found = project(tf.constant([[5.0, -7.0, 0.5]]), tf.constant([[0.25, 0.25, 0.5]]), values)
    assert found.numpy()[0] == pytest.approx([0.25, 0.25, 0.5])
