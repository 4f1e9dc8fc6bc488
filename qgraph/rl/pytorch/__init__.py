"""PyTorch: networks of modules act as quantized networks, in policies that are trained in float.

Needs PyTorch (`pip install torch`).

Examples:
    >>> from torch import nn  # doctest: +SKIP
    >>> from qgraph.rl.pytorch import QuantizedNetwork
    >>> network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))  # doctest: +SKIP
    >>> acting = QuantizedNetwork(network, bits=8)  # doctest: +SKIP
    >>> logits = acting(observations)  # doctest: +SKIP
    >>> acting.update()  # doctest: +SKIP
"""

try:
    import torch  # noqa: F401
except ImportError as error:
    from qgraph.errors import UsageError

    raise UsageError(f"PyTorch is missing ({error})", hint="pip install torch") from None

from qgraph.rl.pytorch.acting import QuantizedNetwork
from qgraph.rl.pytorch.network import TorchNetwork, read_network

__all__ = ["QuantizedNetwork", "TorchNetwork", "read_network"]
