"""Actors: policies as programs, packed into blocks and run without a framework."""

from qgraph.rl.actor.actor import Actor
from qgraph.rl.actor.block import Block, read_block
from qgraph.rl.actor.packer import Packer, end_bits
from qgraph.rl.actor.program import ActorProgram, ActorStep, Weights

__all__ = [
    "Actor",
    "ActorProgram",
    "ActorStep",
    "Block",
    "Packer",
    "Weights",
    "end_bits",
    "read_block",
]
