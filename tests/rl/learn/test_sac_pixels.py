"""SAC on images."""

import numpy as np
import pytest
import tensorflow as tf

from qgraph.rl.actor import Actor, Packer
from qgraph.rl.half.methods import half_settings
from qgraph.rl.learn.pixels import shifted
from tests.helpers.sac import World, batches, learner


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
        "qgraph.rl.learn.sac.shifted", lambda images, seed: calls.append(seed) or images
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
    # What actors run in float32 is what the learner computes, but for the rounding of each.
    weights = {name: v.numpy() for name, v in sac.policy.items()}
    act = Actor(Packer(sac.program, bits=32).pack(weights))
    x = batch.records["observation"].astype(np.float32)
    wanted = sac._run(sac.actor_program, sac.actor, sac.features(sac.critic, x)).numpy()
    tolerance = 1e-4 if how == "float32" else 0.02
    assert np.abs(wanted).max() > 0.5
    assert act(x) == pytest.approx(wanted.astype(float), abs=tolerance)
