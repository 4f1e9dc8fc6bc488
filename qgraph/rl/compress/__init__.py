"""Policies made smaller and quicker for actors, by a chain of links (docs/rl.md)."""

from qgraph.rl.compress.chain import Compressor
from qgraph.rl.compress.form import Policy, Task
from qgraph.rl.compress.link import Link

__all__ = ["Compressor", "Link", "Policy", "Task"]
