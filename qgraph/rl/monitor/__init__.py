"""How far compressed policies are from the original, and what is done about it (docs/rl.md)."""

from qgraph.rl.monitor.indicators import Indicators, LearnerFacts, measure
from qgraph.rl.monitor.monitor import Monitor, parse_strategy
from qgraph.rl.monitor.strategy import Decision, Look, Strategy

__all__ = [
    "Decision",
    "Indicators",
    "LearnerFacts",
    "Look",
    "Monitor",
    "Strategy",
    "measure",
    "parse_strategy",
]
