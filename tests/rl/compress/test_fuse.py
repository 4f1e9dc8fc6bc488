"""Fused programs compute the same in fewer steps."""

import numpy as np
import pytest

from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.compress import ChainPolicy, Compressor
from qgraph.rl.learn.networks import network
from qgraph.rl.policy import floats
from tests.helpers.actors import cnn, every_op, everything, mlp, random_weights

X = "observation"


def dense(source, name, k, m, activation="linear"):
    step = ActorStep(
        "dense", (source,), name, (f"{name}/k", f"{name}/b"), {"activation": activation}
    )
    return step, {f"{name}/k": (k, m), f"{name}/b": (m,)}


def made(shape, *parts, outputs=None, seed=0):
    """A policy of (step, shapes of its weights)."""
    steps, shapes = zip(*parts, strict=True)
    known = {name: shape for part in shapes for name, shape in part.items()}
    program = ActorProgram(shape, steps, outputs or (steps[-1].output,), known)
    return ChainPolicy(program, random_weights(program, seed))


def affine(source, name, c):
    return ActorStep("affine", (source,), name, (f"{name}/s", f"{name}/o")), {
        f"{name}/s": (c,),
        f"{name}/o": (c,),
    }


def ops(policy):
    return [(step.op, step.activation) for step in policy.program.steps]


def same(policy, fused):
    x = np.random.default_rng(1).normal(size=(6, *policy.program.shape)).astype("f4")
    wanted = floats.run(policy.program, policy.weights, x)
    found = floats.run(fused.program, fused.weights, x)
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name] == pytest.approx(wanted[name], rel=2e-5, abs=2e-5)


@pytest.mark.parametrize(
    "program",
    [cnn(), every_op(), everything(), network((84, 84, 4), (16,), 3, dueling=True), mlp(3, 4, 2)],
)
def test_any_program_stays_the_same_function(program):
    policy = ChainPolicy(program, random_weights(program))
    same(policy, Compressor().fuse()(policy))


def test_activations_scales_and_means_go_into_layers():
    policy = made(
        (5,),
        dense(X, "a", 5, 7),
        affine("a", "scaled", 7),
        (
            ActorStep("activate", ("scaled",), "h", (), {"activation": "leaky_relu", "alpha": 0.3}),
            {},
        ),
        dense("h", "b", 7, 3),
        (ActorStep("center", ("b",), "y"), {}),
    )
    fused = Compressor().fuse()(policy)
    assert ops(fused) == [("dense", "leaky_relu"), ("dense", "linear")]
    assert fused.program.steps[0].alpha == 0.3 and fused.program.outputs == ("y",)
    assert fused.numbers == policy.numbers - 14
    same(policy, fused)


def test_two_linear_layers_are_one_where_that_is_no_more_numbers():
    wide = made((5,), dense(X, "a", 5, 9), dense("a", "y", 9, 3))
    assert ops(Compressor().fuse()(wide)) == [("dense", "linear")]
    same(wide, Compressor().fuse()(wide))
    narrow = made((9,), dense(X, "a", 9, 2), dense("a", "y", 2, 8))
    assert Compressor().fuse()(narrow) is narrow


def test_what_others_see_or_use_too_stays():
    seen = made((5,), dense(X, "a", 5, 9), dense("a", "y", 9, 3), outputs=("y", "a"))
    assert Compressor().fuse()(seen) is seen
    heads = made(
        (5,), dense(X, "a", 5, 9), dense("a", "y", 9, 3), dense("a", "z", 9, 1), outputs=("y", "z")
    )
    assert Compressor().fuse()(heads) is heads
    twice = made(
        (4,),
        dense(X, "a", 4, 4),
        (ActorStep("dense", ("a",), "y", ("a/k", "a/b"), {}), {}),
    )
    assert Compressor().fuse()(twice) is twice


def test_a_scale_in_front_goes_into_the_layer_only_where_features_keep_their_range():
    policy = made((5,), affine(X, "seen", 5), dense("seen", "y", 5, 3))
    assert Compressor().fuse()(policy) is policy
    one = {"seen/s": np.full(5, 1 / 256, "f4"), "seen/o": np.zeros(5, "f4")}
    frames = ChainPolicy(policy.program, {**policy.weights, **one})
    fused = Compressor().fuse()(frames)
    assert ops(fused) == [("dense", "linear")]
    same(frames, fused)
    # Nor do few bits change by it.
    x = np.random.default_rng(0).integers(0, 256, (9, 5)).astype("f4")
    before, after = (Compressor().quantize(8)(p).actor()(x) for p in (frames, fused))
    assert (after == before).all()
