"""Trained policies: read as actor programs, quantized, played, compared (docs/rl.md).

Examples:
    >>> import numpy as np
    >>> from qgraph.rl.head import Head
    >>> from qgraph.rl.policy import load_policy, pack, read_policy
    >>> network = read_policy("policy.onnx")
    >>> path = pack(network, Head("argmax"), bits=4).write("policy.qpol")
    >>> policy = load_policy(path)
    >>> policy(np.zeros((3, *policy.shape))).shape
    (3,)
"""

from qgraph.rl.policy.build import pack
from qgraph.rl.policy.file import Packed
from qgraph.rl.policy.policy import Policy, load_policy
from qgraph.rl.policy.read import PolicyNetwork, read_policy
from qgraph.rl.policy.vector import VectorCollector, VectorSteps

__all__ = [
    "Packed",
    "Policy",
    "PolicyNetwork",
    "VectorCollector",
    "VectorSteps",
    "load_policy",
    "pack",
    "read_policy",
]
