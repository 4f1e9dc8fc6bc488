"""What an actor computes, packed and run without a framework."""

from qgraph.rl.actor.actor import Actor
from qgraph.rl.actor.block import Block, read_block
from qgraph.rl.actor.packer import Packer, end_bits
from qgraph.rl.actor.program import ActorProgram, Step, Weights

__all__ = ["Actor", "ActorProgram", "Block", "Packer", "Step", "Weights", "end_bits", "read_block"]
