"""Algorithms of reinforcement learning: a folder each, and one line in `registry.py`."""

from qgraph.rl.agents.config import RunConfig
from qgraph.rl.agents.precision import LearnerPrecision
from qgraph.rl.agents.registry import AGENTS, config_class, config_for

__all__ = ["AGENTS", "LearnerPrecision", "RunConfig", "config_class", "config_for"]
