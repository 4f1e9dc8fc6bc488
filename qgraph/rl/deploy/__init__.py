"""Deployed policies: a policy as C, and its comparison with the policy in Python (docs/rl.md)."""

from qgraph.rl.deploy.deployment import Deployment, deploy
from qgraph.rl.deploy.network_policy import NetworkPolicy
from qgraph.rl.deploy.rollout import Difference, Rollout, roll_out

__all__ = ["Deployment", "Difference", "NetworkPolicy", "Rollout", "deploy", "roll_out"]
