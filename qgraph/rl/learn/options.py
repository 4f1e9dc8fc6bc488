"""`options_for`, which scripts written before the agents had folders import from here."""

from qgraph.rl.agents.registry import config_for as options_for

__all__ = ["options_for"]
