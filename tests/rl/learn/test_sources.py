"""Formats of policies on their way to actors."""

import pytest

from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.agents import config_for
from qgraph.rl.learn.sources import RING, RING_BYTES, packed_bits, ring_capacity


def program(*shape):
    steps = (ActorStep("flatten", ("observation",), "flat"),) if len(shape) > 1 else ()
    value = "flat" if steps else "observation"
    dense = ActorStep("dense", (value,), "output", ("kernel", "bias"))
    return ActorProgram(shape, (*steps, dense), ("output",), {"kernel": (16, 2), "bias": (2,)})


VECTOR, IMAGE = program(16), program(4, 4, 1)


@pytest.mark.parametrize(
    "observation, said, first, last",
    [
        (VECTOR, {"actor_bits": 8}, 16, 16),
        (VECTOR, {"actor_bits": 4}, 16, 16),
        (IMAGE, {"actor_bits": 8}, None, 16),
        (VECTOR, {}, None, None),
        (VECTOR, {"actor_bits": 16}, None, None),
        (VECTOR, {"actor_bits": 32, "broadcast_bits": 8}, None, None),
        (VECTOR, {"actor_bits": 8, "first_bits": 8}, 8, 16),
        (VECTOR, {"actor_bits": 8, "first_bits": 8, "last_bits": 4}, 8, 4),
    ],
)
def test_first_and_last_layers_have_more_bits_by_default(observation, said, first, last):
    options = config_for("dqn", "CartPole-v1", **said)
    found = packed_bits(options, observation)
    assert found == (options.broadcast_bits, first, last)


@pytest.mark.parametrize(
    "algorithm, said, record_bytes, rings, expected",
    [
        ("impala", {"batch_size": 320}, 60, 1, 320),
        ("impala", {"batch_size": 320}, 60, 2, 160),
        ("impala", {"batch_size": 320}, 60, 3, 107),
        ("impala", {"batch_size": 320}, 60, 8, RING),
        ("impala", {"batch_size": 3200}, 56_000, 1, RING_BYTES // 56_000),
        ("dqn", {"batch_size": 128, "samples_per_insert": 64}, 60, 1, RING),
        ("dqn", {"batch_size": 128, "samples_per_insert": 0.5}, 60, 1, 256),
        ("ppo", {"batch_size": 2048}, 60, 1, RING),
    ],
)
def test_rings_have_space_for_the_next_step_of_the_learner(
    algorithm, said, record_bytes, rings, expected
):
    config = config_for(algorithm, "CartPole-v1", **said)
    assert ring_capacity(config, record_bytes, rings) == expected
