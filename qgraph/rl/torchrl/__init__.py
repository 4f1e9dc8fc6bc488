"""TorchRL: collectors that act with quantized copies of a policy.

Needs TorchRL (`pip install torchrl`).

Examples:
    >>> from torchrl.collectors import MultiSyncCollector  # doctest: +SKIP
    >>> from qgraph.rl.torchrl import QuantizedWeightSync, quantized_policy
    >>> acting = quantized_policy(policy, bits=8)  # doctest: +SKIP
    >>> collector = MultiSyncCollector(  # doctest: +SKIP
    ...     [make_env] * 4, acting, frames_per_batch=1024,
    ...     weight_sync_schemes={"policy": QuantizedWeightSync(policy, acting)},
    ... )
    >>> collector.update_policy_weights_()  # doctest: +SKIP
"""

try:
    import torchrl  # noqa: F401
except ImportError as error:
    from qgraph.distribution import install_hint
    from qgraph.errors import UsageError

    raise UsageError(
        f"TorchRL is missing ({error})", hint=install_hint("torchrl", extra="torchrl")
    ) from None

from qgraph.rl.torchrl.policy import quantized_policy, update_policy
from qgraph.rl.torchrl.scheme import QuantizedWeightSync

__all__ = ["QuantizedWeightSync", "quantized_policy", "update_policy"]
