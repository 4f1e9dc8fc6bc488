"""Deployed policies: C for a device, compared with the policy in Python (docs/rl.md).

Examples:
    >>> from qgraph.rl.deploy import deploy
    >>> from qgraph.rl.policy import load_policy
    >>> deploy(load_policy("static.qpol"), "device").facts.observed
    'float'
"""

from qgraph.rl.deploy.deployment import Deployment, deploy
from qgraph.rl.deploy.network_policy import NetworkPolicy
from qgraph.rl.deploy.rollout import ActionDifference, Rollout, roll_out

__all__ = ["ActionDifference", "Deployment", "NetworkPolicy", "Rollout", "deploy", "roll_out"]
