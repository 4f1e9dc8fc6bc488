"""What an actor computes, packed and run without a framework."""

from qgraph.rl.actor.form import ActorProgram, Step, Weights

__all__ = ["ActorProgram", "Step", "Weights"]
