"""The packed actor against the float32 policy, and against plain numpy bit for bit."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qgraph.errors import GraphError, LoadError, TrainingError, UnsupportedError, UsageError
from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer, read_block
from tests.helpers.actors import cnn, every_op, mlp, random_weights

ROOT = Path(__file__).parents[3]
PROGRAMS = {"mlp": mlp(17, 70, 33, 3, last="tanh"), "cnn": cnn(), "every op": every_op()}


def observations(program: ActorProgram, n: int = 5, seed: int = 1):
    return np.random.default_rng(seed).normal(size=(n, *program.shape)).astype(np.float32)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("bits", "limit"), [(32, 1e-6), (16, 2e-3), (8, 0.05), (6, 0.2), (4, 0.7)])
def test_fewer_bits_stay_near_the_float_policy(name, bits, limit):
    program = PROGRAMS[name]
    weights, x = random_weights(program), observations(program)
    exact = Actor(Packer(program, 32).pack(weights)).run(x)
    found = Actor(Packer(program, bits).pack(weights)).run(x)
    for output in program.outputs:
        assert found[output].shape == (5, *program.shapes()[output])
        assert abs(found[output] - exact[output]).max() <= limit * abs(exact[output]).max()


def test_float32_is_the_policy():
    program = mlp(6, 20, 3, last="tanh")
    w, x = random_weights(program), observations(program)
    hidden = np.maximum(x.astype(float) @ w["w0"] + w["b0"], 0)
    expected = np.tanh(hidden @ w["w1"] + w["b1"])
    assert Actor(Packer(program, 32).pack(w))(x) == pytest.approx(expected, abs=1e-6)


def test_one_observation_gives_one_output():
    program = mlp(6, 20, 3)
    actor = Actor(Packer(program).pack(random_weights(program)))
    x = observations(program)
    assert actor(x[2]).shape == (3,)
    assert (actor(x[2]) == actor(x)[2]).all()


def test_a_block_describes_itself_and_is_packed_in_place():
    program = mlp(6, 20, 3)
    packer = Packer(program, bits=4, last_bits=8)
    memory = np.zeros(packer.size, np.uint8)
    block = packer.pack(random_weights(program), version=7, out=memory)
    assert block is memory
    found = read_block(bytes(block))
    assert (found.version, found.bits, found.size) == (7, 4, packer.size)
    assert (found.shape, found.outputs) == ((6,), ("y1",))
    assert found.program.weight_shapes == program.weight_shapes


def test_an_actor_becomes_another_program_with_the_same_ends():
    wide, narrow = mlp(6, 20, 3), mlp(6, 5, 3)
    actor = Actor(Packer(wide, 8).pack(random_weights(wide), version=1))
    block = Packer(narrow, 4).pack(random_weights(narrow), version=2)
    memory = np.full(4096 + len(block), 255, np.uint8)
    memory[: len(block)] = block
    actor.switch_program(memory)
    x = observations(narrow)
    assert actor.version == 2 and (actor(x) == Actor(block)(x)).all()
    other = random_weights(narrow, seed=3)
    actor.switch_program(Packer(narrow, 4).pack(other, version=3))
    assert (actor(x) == Actor(Packer(narrow, 4).pack(other))(x)).all()
    renamed = ActorProgram(narrow.shape, (narrow.steps[0],), ("y0",), {"w0": (6, 5), "b0": (5,)})
    both = replace(wide, outputs=("y0", "y1"))
    first = Actor(Packer(both, 8).pack(random_weights(both)))
    turned = replace(both, outputs=("y1", "y0"))
    with pytest.raises(LoadError, match="other observations or outputs"):
        first.switch_program(Packer(turned, 8).pack(random_weights(turned)))
    for strange in (mlp(5, 5, 3), mlp(6, 5, 4), renamed):
        with pytest.raises(LoadError, match="other observations or outputs"):
            actor.switch_program(Packer(strange, 8).pack(random_weights(strange)))
    with pytest.raises(LoadError, match="not an actor block"):
        actor.switch_program(np.zeros(4096, np.uint8))
    assert actor.version == 3 and (actor(x) == Actor(Packer(narrow, 4).pack(other))(x)).all()


def test_an_actor_switches_to_other_weights():
    program = mlp(6, 20, 3)
    packer, x = Packer(program), observations(program)
    first, second = (packer.pack(random_weights(program, seed), seed) for seed in (1, 2))
    actor = Actor(first)
    before = actor(x)
    actor.switch(second)
    assert actor.version == 2
    assert (actor(x) == Actor(second)(x)).all()
    assert (actor(x) != before).any()
    with pytest.raises(LoadError, match="a different program"):
        actor.switch(Packer(mlp(6, 21, 3)).pack(random_weights(mlp(6, 21, 3))))
    damaged = first.copy()
    damaged[-1] ^= 1
    with pytest.raises(LoadError, match="checksum"):
        actor.switch(damaged)
    assert actor.version == 2


@pytest.mark.parametrize(("bits", "compute_bits"), [(8, 32), (32, 8), (4, 16), (8, 8)])
def test_bits_of_the_broadcast_and_of_the_computation_are_separate(bits, compute_bits):
    program = mlp(17, 70, 3)
    weights, x = random_weights(program), observations(program)
    block = Packer(program, bits).pack(weights, 3)
    actor = Actor(block, compute_bits=compute_bits)
    assert actor.version == 3
    exact = Actor(Packer(program, 32).pack(weights))(x)
    assert abs(actor(x) - exact).max() < (0.3 if bits == 4 else 0.05)
    if bits == compute_bits:
        assert (actor(x) == Actor(block)(x)).all()
    actor.switch(Packer(program, bits).pack(random_weights(program, 5), 4))
    assert actor.version == 4


def test_observations_that_do_not_fit_are_refused():
    program = mlp(6, 20, 3)
    actor = Actor(Packer(program).pack(random_weights(program)))
    x = observations(program)
    with pytest.raises(UsageError, match="found"):
        actor(x[:, :5])
    x[3, 2] = np.nan
    x[4, 1] = np.inf
    with pytest.raises(UsageError, match=r"observations\[3, 2\] = nan"):
        actor(x)
    assert actor.refused == 2
    assert np.isfinite(actor(x[:3].astype(np.float64))).all()


def test_weights_that_do_not_fit_are_refused():
    program = mlp(6, 20, 3)
    weights = random_weights(program)
    with pytest.raises(GraphError, match="w0: the weight is missing"):
        Packer(program).pack({})
    with pytest.raises(GraphError, match="the weight has shape"):
        Packer(program).pack({**weights, "w0": weights["w1"]})
    with pytest.raises(UsageError, match="bytes"):
        Packer(program).pack(weights, out=np.zeros(64, np.uint8))
    with pytest.raises(UsageError, match="9"):
        Packer(program, bits=9)
    weights["w1"][3, 1] = np.nan
    out = Packer(program).allocate()
    with pytest.raises(TrainingError, match="w1"):
        Packer(program).pack(weights, out=out)
    with pytest.raises(LoadError):
        read_block(out)


def test_programs_that_no_block_holds_are_refused():
    with pytest.raises(UnsupportedError, match="may exceed 32 bits"):
        Packer(mlp(1 << 17, 1))
    with pytest.raises(GraphError, match="y: clip: unknown attribute `activation`"):
        ActorStep("clip", ("observation",), "y", ("low", "high"), {"activation": "relu"})


def test_zeros_are_exact_and_channels_may_be_empty():
    program = mlp(6, 20, 3)
    weights = random_weights(program)
    weights["w1"][:, 1] = 0
    actor = Actor(Packer(program).pack(weights))
    assert (actor(observations(program))[:, 1] == weights["b1"][1]).all()
    weights["b0"][:] = 0
    actor.switch(Packer(program).pack(weights))
    assert (actor(np.zeros((1, 6), np.float32)) == weights["b1"]).all()


def test_acting_takes_no_framework():
    code = (
        "import sys, numpy as np; from tests.helpers.actors import mlp, random_weights; "
        "from qgraph.rl.actor import Actor, Packer; program = mlp(4, 8, 2); "
        "Actor(Packer(program).pack(random_weights(program)))(np.ones(4, np.float32)); "
        "sys.exit(bool({'tensorflow', 'torch', 'onnx'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
