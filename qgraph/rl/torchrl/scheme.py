"""Weights of collectors as packed blocks, through the queues of TorchRL."""

from __future__ import annotations

from tensordict import TensorDict, TensorDictBase
from torchrl.weight_update import MultiProcessWeightSyncScheme

from qgraph.errors import UsageError
from qgraph.foreign import TorchModule, TorchTensor
from qgraph.rl.torchrl.policy import update_policy


class QuantizedWeightSync(MultiProcessWeightSyncScheme):  # type: ignore[misc]  # not type-checked
    """Sends collectors the packed weights of a policy.

    Each call of `collector.update_policy_weights_()` packs the current weights once, and sends the
    blocks to all workers: with 8 bits, about a quarter of the bytes of float32. Workers check a
    block before they use it.

    Args:
        policy: The policy that is trained.
        acting: Its copy from `quantized_policy`, which the collector was given.
        sync: Whether to wait until workers have the weights, as in TorchRL.

    Examples:
        >>> from torch import nn
        >>> from qgraph.rl.torchrl import QuantizedWeightSync, quantized_policy
        >>> policy = nn.Sequential(nn.Linear(4, 2))
        >>> scheme = QuantizedWeightSync(policy, quantized_policy(policy))
    """

    def __init__(self, policy: TorchModule, acting: TorchModule, sync: bool = True) -> None:
        super().__init__(sync=sync)
        self._trained: tuple[TorchModule, TorchModule] | None = (policy, acting)

    def prepare_weights(
        self, weights: TorchTensor, model_id: str, strategy: object, context: object = None
    ) -> TorchTensor:
        """Pack the current weights of the policy; TorchRL calls this before it sends them.

        Args:
            weights: What was given to `update_policy_weights_`: nothing, or the policy.
            model_id: The name of the model.
            strategy: How TorchRL reads and writes weights.
            context: The collector.

        Returns:
            The blocks, and the parameters that are not quantized.

        Raises:
            UsageError: Other weights were given.
        """
        if self._trained is None:
            raise UsageError("a scheme of another process cannot send weights")
        policy, acting = self._trained
        if not _are_weights_of(weights, policy, acting):
            raise UsageError(
                "only the weights of the policy that the scheme was made for can be sent",
                hint="call `update_policy_weights_()` without weights",
            )
        update_policy(acting, policy)
        return TensorDict.from_module(acting).data.clone()

    def __getstate__(self) -> dict[str, object]:
        """The state in workers, which get weights and send none."""
        state: dict[str, object] = super().__getstate__()
        return {**state, "_trained": None}


def _are_weights_of(weights: TorchTensor, policy: TorchModule, acting: TorchModule) -> bool:
    """Whether weights are nothing, a policy, or the tensors of one of them themselves."""
    if weights is None or weights is policy or weights is acting:
        return True
    if not isinstance(weights, TensorDictBase):
        return False
    own = [TensorDict.from_module(module) for module in (policy, acting)]
    given = {x.data_ptr() for x in weights.values(True, True)}
    return any(given == {x.data_ptr() for x in one.values(True, True)} for one in own)
