"""Distance of compressed policies from the original, and the decisions based on it.

docs/rl_compression.md describes it.
"""

from qgraph.rl.monitor.indicators import Indicators, LearnerFacts, measure
from qgraph.rl.monitor.monitor import Monitor, parse_strategy
from qgraph.rl.monitor.strategy import Decision, Measurement, Strategy

__all__ = [
    "Decision",
    "Indicators",
    "LearnerFacts",
    "Measurement",
    "Monitor",
    "Strategy",
    "measure",
    "parse_strategy",
]
