"""`options_for`, which older scripts import from here."""

from qgraph.rl.agents.registry import config_for as options_for

__all__ = ["options_for"]
