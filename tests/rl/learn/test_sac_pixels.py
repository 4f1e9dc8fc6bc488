"""SAC on images."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer
from qgraph.rl.agents.former_names import half_settings
from qgraph.rl.agents.sac.pixels import shifted
from qgraph.rl.half.scaling import FIRST_SCALE
from qgraph.rl.learn.tensors import run
from tests.helpers.rl_records import World
from tests.helpers.sac import batches, learner


def test_images_are_shifted_each_by_itself():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (64, 9, 11, 2)).astype(np.uint8)
    moved, seen = shifted(tf.constant(images), tf.constant([0, 5])).numpy(), set()
    for whole, found in zip(images, moved, strict=True):
        rim = np.pad(whole, ((4, 4), (4, 4), (0, 0)), mode="edge")
        places = [
            (i, j)
            for i in range(9)
            for j in range(9)
            if np.array_equal(rim[i : i + 9, j : j + 11], found)
        ]
        assert len(places) == 1
        seen.update(places)
    assert len(seen) > 30 and {i for i, _ in seen} == {j for _, j in seen} == set(range(9))


def test_images_are_shifted_in_each_step(monkeypatch):
    world, calls = World((20, 20, 3), np.uint8, 1), []
    monkeypatch.setattr(
        "qgraph.rl.agents.sac.learner.shifted", lambda images, seed: calls.append(seed) or images
    )
    (batch,) = batches(world, 1)
    learner(world).step(batch)
    assert len(calls) == 2


@pytest.mark.parametrize("how", ["float32", "all"])
def test_images(how):
    world = World((20, 20, 3), np.uint8, 1)
    settings = {} if how == "float32" else half_settings(how)
    sac = learner(world, **settings)
    kernel = sac.actor["output/kernel"]  # tiny at first
    kernel.assign(np.random.default_rng(3).normal(size=kernel.shape))
    before = {k: v.numpy() for k, v in sac.critic.items()}
    for batch in batches(world, 3):
        errors, loss = sac.step(batch)
        assert np.isfinite(loss) and np.isfinite(errors).all()
    names = [name for name in before if name.startswith("encoder/")]
    assert len(names) == 12 and not any("scaled" in name for name in names)
    moved = [not np.array_equal(before[name], sac.critic[name].numpy()) for name in names]
    assert np.mean(moved) > 0.9
    # What actors run in float32 is what the learner computes, except the rounding of each.
    weights = {name: v.numpy() for name, v in sac.policy.items()}
    act = Actor(Packer(sac.program, bits=32).pack(weights))
    x = batch.records["observation"].astype(np.float32)
    wanted = sac._run(sac.actor_program, sac.actor, sac.features(sac.critic, x)).numpy()
    tolerance = 1e-4 if how == "float32" else 0.02
    assert np.abs(wanted).max() > 0.5
    assert act(x) == pytest.approx(wanted.astype(float), abs=tolerance)


def test_images_as_large_as_the_paper_s_need_no_lower_scale():
    """The gradient of their linear layer is infinite where 39,200 are summed in float16."""
    world = World((84, 84, 1), np.uint8, 1)
    sac = learner(world, **half_settings("all"))
    for batch in batches(world, 1, size=4):
        sac.step(batch)
    assert float(sac.descents["critic"].scale.value) == FIRST_SCALE


def test_few_significand_bits_of_standardised_weights():
    world = World((20, 20, 3), np.uint8, 1)
    sac = learner(world, significand=3, **half_settings("all"))
    kernel = sac.policy["encoded/kernel"].numpy()
    assert np.array_equal(kernel, sac.rounded(tf.constant(kernel))) and len(np.unique(kernel)) > 8
    (batch,) = batches(world, 1)
    images = batch.records["observation"]
    shown = sac._run(sac.encoder, sac._computed(sac.policy), images)
    assert np.array_equal(shown, sac.features(sac.critic, images))


@pytest.mark.parametrize(("op", "shape"), [("conv", (16, 41, 41, 2)), ("dense", (4096, 2))])
def test_gradients_of_biases(op, shape):
    """Gradients over images are summed in float32; all others are as in published runs."""
    axes = tuple(range(len(shape) - 1))
    attrs = {"strides": (1, 1)} if op == "conv" else {}
    kernel = tf.ones((2, 2) if op == "dense" else (1, 1, 2, 2), tf.float16)
    step = ActorStep(op, ("observation",), "y", ("kernel", "bias"), attrs)
    program = ActorProgram(shape[1:], (step,), ("y",), {"kernel": kernel.shape, "bias": (2,)})
    back = tf.fill(shape, tf.constant(0.01, tf.float16))
    with tf.GradientTape() as tape:
        bias = tf.Variable(tf.zeros(2, tf.float16))
        y = run(program, {"kernel": kernel, "bias": bias}, tf.zeros(shape), dtype=tf.float16)
    found = tape.gradient(y, bias, output_gradients=back).numpy().tolist()
    plain = tf.reduce_sum(back, axes).numpy().tolist()
    wanted = np.sum(back.numpy(), axes, np.float64)
    assert plain != pytest.approx(wanted, rel=2e-3)
    assert found == (plain if op == "dense" else pytest.approx(wanted, rel=1e-3))
