"""Policies made smaller and quicker for actors, by a chain of links (docs/rl_compression.md)."""

from qgraph.rl.compress.chain import Compressor
from qgraph.rl.compress.chain_policy import ChainPolicy, Task
from qgraph.rl.compress.link import Link

__all__ = ["ChainPolicy", "Compressor", "Link", "Task"]
