"""Formats of policies on their way to actors."""

import pytest

from qgraph.rl.actor import ActorProgram, ActorStep
from qgraph.rl.agents import config_for
from qgraph.rl.learn.sources import packed_bits


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
