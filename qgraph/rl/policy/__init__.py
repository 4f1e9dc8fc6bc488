"""Trained policies: read as actor programs, quantized, played, compared (docs/rl.md).

network = read_policy("policy.pb")
pack(network, Head("argmax"), bits=4).write("policy.qpol")
policy = load_policy("policy.qpol")
actions = policy(observations)
"""

from qgraph.rl.policy.build import pack
from qgraph.rl.policy.file import Packed
from qgraph.rl.policy.policy import Policy, load_policy
from qgraph.rl.policy.read import PolicyNetwork, read_policy

__all__ = ["Packed", "Policy", "PolicyNetwork", "load_policy", "pack", "read_policy"]
