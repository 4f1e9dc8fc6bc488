"""A copy of a policy of TorchRL whose networks act quantized."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn
from torchrl.modules import MLP

from qgraph.errors import UnsupportedError, UsageError
from qgraph.foreign import TorchModule, TorchTensor
from qgraph.rl.pytorch import QuantizedNetwork

SEQUENCES = (nn.Sequential, MLP)  # they run their children one after the other


def quantized_policy(
    policy: TorchModule,
    *,
    bits: int = 8,
    shape: Sequence[int] | None = None,
    level: str = "auto",
) -> TorchModule:
    """Copy a policy for collectors; its networks act with quantized weights.

    In each sequence of modules, the longest beginning that actors support becomes a
    `QuantizedNetwork`. What follows, such as `NormalParamExtractor`, and the distributions stay as
    they are.

    Args:
        policy: The policy, a module of TorchRL or tensordict. It is not changed.
        bits: Bits of weights.
        shape: Shape of one observation, as in `qgraph.rl.pytorch.read_network`.
        level: CPU instructions to use, as in `qgraph.rl.actor.Actor`.

    Returns:
        The copy, for `update_policy` and `QuantizedWeightSync`.

    Raises:
        UnsupportedError: The policy has no network that actors support.

    Examples:
        >>> from tensordict.nn import TensorDictModule
        >>> from torchrl.modules import MLP
        >>> from qgraph.rl.torchrl import quantized_policy
        >>> network = MLP(in_features=4, out_features=2, num_cells=[64])
        >>> policy = TensorDictModule(network, in_keys=["observation"], out_keys=["action"])
        >>> [name for name, _ in quantized_policy(policy).named_buffers()]
        ['module.0.block']
    """
    found: list[QuantizedNetwork] = []
    reasons: list[str] = []

    def changed(module: TorchModule) -> TorchModule | None:
        """The replacement of a module; None if it stays."""
        if type(module) is nn.Linear:
            return quantized([module])
        reshapes = getattr(module, "_reshape_out", False)  # MLP, for outputs of several axes
        if type(module) in SEQUENCES and not reshapes:
            parts = [*module.children()]
            for count in range(len(parts), 0, -1):
                network = quantized(parts[:count])
                if network is not None:
                    return nn.Sequential(network, *map(copy.deepcopy, parts[count:]))
        return None

    def quantized(parts: Sequence[TorchModule]) -> QuantizedNetwork | None:
        try:
            network = QuantizedNetwork(*parts, shape=shape, bits=bits, level=level)
        except (UnsupportedError, UsageError) as error:
            reasons.append(str(error))
            return None
        found.append(network)
        return network

    acting = _replaced(policy, changed)
    if not found:
        raise UnsupportedError(
            "the policy has no network that actors support"
            + (f": {reasons[0]}" if reasons else ""),
            hint="networks are linear layers, or sequences that begin with supported modules",
        )
    return acting


def _replaced(policy: TorchModule, changed: object) -> TorchModule:
    """A copy of a policy, with other modules in place of some of its own."""
    assert callable(changed)
    places: dict[str, TorchModule] = {}
    for name, module in policy.named_modules():
        if any(name == place or name.startswith(f"{place}.") or not place for place in places):
            continue
        other = changed(module)
        if other is not None:
            places[name] = other
    if "" in places:
        return places[""]
    acting = copy.deepcopy(policy)
    for name, other in places.items():
        parent, _, last = name.rpartition(".")
        setattr(acting.get_submodule(parent), last, other)
    return acting


def update_policy(acting: TorchModule, policy: TorchModule) -> None:
    """Bring the current weights of a policy into its quantized copy.

    Args:
        acting: The copy that `quantized_policy` returned, in the same process.
        policy: The policy that it was made from.

    Raises:
        UsageError: The copy is of another policy, or was itself copied.
        TrainingError: A weight is not finite.

    Examples:
        >>> from torch import nn
        >>> from qgraph.rl.torchrl import quantized_policy, update_policy
        >>> policy = nn.Sequential(nn.Linear(4, 2))
        >>> acting = quantized_policy(policy)
        >>> update_policy(acting, policy)
    """
    own: dict[str, TorchTensor] = {}
    for name, module in acting.named_modules():
        if isinstance(module, QuantizedNetwork):
            module.update()
            own[f"{name}.block" if name else "block"] = module.block
    given = {**dict(policy.named_parameters()), **dict(policy.named_buffers())}
    with torch.no_grad():
        for name, tensor in [*acting.named_parameters(), *acting.named_buffers()]:
            if name in own:
                continue
            if name not in given or given[name].shape != tensor.shape:
                raise UsageError(
                    f"the policy has no `{name}` of shape {list(tensor.shape)}",
                    hint="give the policy that `quantized_policy` copied",
                )
            tensor.copy_(given[name])
