"""Native code against plain numpy, at every level: the same bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import TrainingError
from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer
from qgraph.rl.actor.actor import levels
from qgraph.rl.actor.ops import ACTIVATIONS
from qgraph.rl.actor.packer import pack_plain
from tests.helpers.actors import arranged, cnn, every_op, mlp, random_weights

LEVELS = [level for level in levels() if level != "numpy"]
pytestmark = pytest.mark.skipif(not LEVELS, reason="the native extension is not built")
BITS = (32, 16, 8, 5, 4, 2)


def same_at_all_levels(program: ActorProgram, weights, bits: int, x) -> None:
    block = Packer(program, bits).pack(weights)
    expected = Actor(block, "numpy").run(x)
    for level in LEVELS:
        found = Actor(block, level).run(x)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=f"{level} {name}")


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(
    "program",
    [
        cnn(),
        cnn(9, 1, pads=((0, 0), (0, 0))),
        every_op(),
        every_op(16),
        arranged(),
        arranged(5, 17),
    ],
)
@pytest.mark.parametrize("n", [1, 3])
def test_every_step_gives_the_same_bits(program, bits, n):
    x = np.random.default_rng(n).normal(size=(n, *program.shape)).astype(np.float32)
    same_at_all_levels(program, random_weights(program), bits, x)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bits", [32, 8])
@pytest.mark.parametrize("n", [1, 5, 300])
def test_images_of_bytes_give_the_same_bits_as_of_floats(level, bits, n):
    program = cnn()
    images = np.random.default_rng(n).integers(0, 256, (n, *program.shape), np.uint8)
    actor = Actor(Packer(program, bits).pack(random_weights(program)), level)
    expected = actor(images.astype(np.float32))
    for same in (images, np.asfortranarray(images), images.astype(np.int64)):
        np.testing.assert_array_equal(actor(same), expected)
    np.testing.assert_array_equal(actor(images[0]), expected[0])
    np.testing.assert_array_equal(actor(images[-1:]), expected[-1:])


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_what_environments_give_is_taken_without_a_conversion_in_python(kind, monkeypatch):
    program = cnn()
    actor = Actor(Packer(program).pack(random_weights(program)))
    monkeypatch.setattr(Actor, "_checked", lambda *_: pytest.fail("converted in Python"))
    assert np.isfinite(actor(np.ones((1, *program.shape), kind))).all()


@settings(max_examples=60)
@given(st.data())
def test_dense_steps_of_any_size_give_the_same_bits(data):
    sizes = data.draw(st.lists(st.integers(1, 300), min_size=2, max_size=4))
    n = data.draw(st.integers(1, 40))
    bits = data.draw(st.sampled_from(BITS))
    activation = data.draw(st.sampled_from(ACTIVATIONS))
    program = mlp(*sizes, activation=activation)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = (rng.normal(size=(n, sizes[0])) * 10 ** rng.uniform(-3, 3)).astype(np.float32)
    same_at_all_levels(program, random_weights(program), bits, x)


@settings(max_examples=40)
@given(st.data())
def test_convolutions_of_any_shape_give_the_same_bits(data):
    kernel = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
    pads = tuple(tuple(data.draw(st.integers(0, 2)) for _ in "be") for _ in "hw")
    height, width = data.draw(st.integers(4, 9)), data.draw(st.integers(4, 9))
    channels, outputs = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 80))
    strides = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    attrs = {"strides": strides, "pads": pads, "activation": "relu"}
    step = ActorStep("conv", ("observation",), "y", ("w", "b"), attrs)
    shapes = {"w": (*kernel, channels, outputs), "b": (outputs,)}
    program = ActorProgram((height, width, channels), (step,), ("y",), shapes)
    x = np.random.default_rng(0).normal(size=(2, height, width, channels)).astype(np.float32)
    same_at_all_levels(program, random_weights(program), data.draw(st.sampled_from(BITS)), x)


@pytest.mark.parametrize("name", [a for a in ACTIVATIONS if a != "linear"])
def test_activation_functions_are_right_and_the_same_bits(name):
    x = np.concatenate([np.linspace(-120, 120, 4001), np.logspace(-30, 3, 500), [0.0, -0.0, 1e30]])
    x = np.concatenate([x, -x]).astype(np.float32)
    step = ActorStep("activate", ("observation",), "y", (), {"activation": name})
    program = ActorProgram(x.shape, (step,), ("y",), {})
    block = Packer(program).pack({})
    found = Actor(block, "numpy")(x)
    with np.errstate(over="ignore"):
        v = x.astype(np.float64)
        sigmoid = 1 / (1 + np.exp(-v))
        expected = {
            "relu": np.maximum(v, 0),
            "leaky_relu": np.where(v < 0, 0.2 * v, v),
            "elu": np.where(v < 0, np.expm1(v), v),
            "tanh": np.tanh(v),
            "sigmoid": sigmoid,
            "softplus": np.logaddexp(v, 0),
            "swish": v * sigmoid,
            "exp": np.exp(v).astype(np.float32),
            "sign": np.sign(v),
            "erf": np.vectorize(math.erf)(v),
        }[name]
    near = 5e-7 if name == "erf" else 2e-7
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=near)
    for level in LEVELS:
        np.testing.assert_array_equal(Actor(block, level)(x), found)


@pytest.mark.parametrize("bits", [32, 16, 8, 7, 5, 4, 3, 2])
@pytest.mark.parametrize("program", [mlp(7, 1, 130, 66), mlp(1030, 1100), cnn(), every_op()])
def test_packing_gives_the_same_bytes(program, bits):
    weights = random_weights(program)
    first = next(iter(weights))
    weights[first][..., 0] = 0
    weights[first][0] *= np.float32(1e-36)
    packer = Packer(program, bits, last_bits=8)
    dirty = packer.allocate()
    dirty[:] = 255
    native = packer.pack(weights, version=3, out=dirty)
    plain = packer.allocate()
    tables = np.frombuffer(packer.layout.tables, np.uint8)
    plain[: len(tables)] = tables
    plain[32:40].view("<u8")[0] = 3
    pack_plain(packer, weights, plain)
    assert (native == plain).all()


def test_what_overflows_is_not_a_number_everywhere():
    program = mlp(4, 20, 3)
    weights = random_weights(program)
    weights["w0"] *= np.float32(1e30)
    x = np.full((2, 4), 1e30, np.float32)
    x[1] = 0.5
    same_at_all_levels(program, weights, 8, x)
    found = Actor(Packer(program).pack(weights))(x)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


def test_many_observations_and_none():
    program = mlp(4, 20, 3)
    actor = Actor(Packer(program).pack(random_weights(program)))
    x = np.random.default_rng(0).normal(size=(700, 4)).astype(np.float32)
    assert (actor(x)[699] == actor(x[699])).all()
    assert actor(x[:0]).shape == (0, 3)
    assert (actor(np.asfortranarray(x)) == actor(x)).all()
    assert (actor(x.astype(np.float64)) == actor(x)).all()


def test_a_nan_is_found_by_every_thread_that_packs():
    program = mlp(1030, 1100)
    weights = random_weights(program)
    weights["w0"][1000, 1090] = np.inf
    with pytest.raises(TrainingError, match="NaN or infinity"):
        Packer(program).pack(weights)
