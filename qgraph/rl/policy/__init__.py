"""Trained policies: read as actor programs, quantized, played, compared (docs/rl.md)."""

from qgraph.rl.policy.read import PolicyNetwork, read_policy

__all__ = ["PolicyNetwork", "read_policy"]
