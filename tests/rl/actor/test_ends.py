"""First and last layers are those next to the observation and to the outputs, in every branch."""

import pytest

from qgraph.rl.actor import ActorProgram, ActorStep, Packer, end_bits
from qgraph.rl.actor.ends import first_layers, last_layers
from tests.helpers.actors import mlp, random_weights


def dueling(hidden=16):
    """Two branches of two layers from the observation on, with a scale in front of one."""
    steps = (
        ActorStep("dense", ("observation",), "v0", ("kv0", "bv0"), {"activation": "relu"}),
        ActorStep("dense", ("v0",), "v1", ("kv1", "bv1"), {"activation": "relu"}),
        ActorStep("dense", ("v1",), "value", ("kv2", "bv2")),
        ActorStep("affine", ("observation",), "scaled", ("s", "t")),
        ActorStep("dense", ("scaled",), "a0", ("ka0", "ba0"), {"activation": "relu"}),
        ActorStep("dense", ("a0",), "advantages", ("ka1", "ba1")),
        ActorStep("center", ("advantages",), "centered"),
        ActorStep("add", ("centered", "value"), "q"),
    )
    shapes = {
        "kv0": (4, hidden), "bv0": (hidden,), "kv1": (hidden, hidden), "bv1": (hidden,),
        "kv2": (hidden, 1), "bv2": (1,), "s": (4,), "t": (4,), "ka0": (4, hidden),
        "ba0": (hidden,), "ka1": (hidden, 3), "ba1": (3,),
    }  # fmt: skip
    return ActorProgram((4,), steps, ("q",), shapes)


def test_each_branch_has_a_first_and_a_last_layer():
    program = dueling()
    assert [step.output for step in first_layers(program)] == ["v0", "a0"]
    assert [step.output for step in last_layers(program)] == ["value", "advantages"]
    one = mlp(4, 8, 8, 3)
    assert [first_layers(one), last_layers(one)] == [[one.steps[0]], [one.steps[-1]]]


@pytest.mark.parametrize("bits", [8, 4])
def test_every_branch_is_packed_with_the_bits_of_the_ends(bits):
    program = dueling()
    packer = Packer(program, bits, *end_bits(program, bits))
    packer.pack(random_weights(program))
    found = {name: kernel.bits for name, kernel in packer.layout.kernels.items()}
    assert found == {"kv0": 16, "kv1": bits, "kv2": 16, "ka0": 16, "ka1": 16}
