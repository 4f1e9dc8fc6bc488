"""Modules of RLlib whose copies in environment runners act with quantized weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import torch
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import ENCODER_OUT
from ray.rllib.core.models.torch.encoder import TorchMLPEncoder
from ray.rllib.core.models.torch.heads import TorchFreeLogStdMLPHead, TorchMLPHead
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule, TorchTensor
from qgraph.rl.pytorch import QuantizedNetwork

NEAR = 1e-5  # the same computation in float32
HEADS = (TorchMLPHead, TorchFreeLogStdMLPHead)


class QuantizedActing(TorchRLModule):  # type: ignore[misc]  # RLlib is not type-checked
    """Lets a module of RLlib act with quantized weights where it only acts.

    Put it before a module of RLlib that has an encoder and a head for its policy, as
    `QuantizedPPOModule` does. Copies with `inference_only`, which RLlib has in environment runners,
    pack the weights that they are given (`set_state`) and act by the actor engine, for all
    environments of a runner in one call. Learners compute in float.

    Encoders are those of vectors, without states; heads are those of RLlib.

    Attributes:
        actor_bits: Bits of weights; a subclass may have others.
        actor_level: CPU instructions to use, as in `qgraph.rl.actor.Actor`.

    Examples:
        >>> from ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module import (
        ...     DefaultSACTorchRLModule,
        ... )
        >>> from qgraph.rl.rllib import QuantizedActing
        >>> class FourBits(QuantizedActing, DefaultSACTorchRLModule):
        ...     actor_bits = 4
    """

    actor_bits: int = 8
    actor_level: str = "auto"

    def setup(self) -> None:
        """Build the networks."""
        super().setup()
        self._quantized: tuple[QuantizedNetwork, TorchModule] | None = None

    def policy_parts(self) -> tuple[TorchModule, TorchModule]:
        """Name the parts that act.

        Returns:
            The encoder of observations, and the head.

        Raises:
            UnsupportedError: The module has no such parts.
        """
        encoder = getattr(self, "pi_encoder", None)
        if encoder is None:
            both = getattr(self, "encoder", None)
            encoder = getattr(both, "actor_encoder", None) or getattr(both, "encoder", None)
        head = getattr(self, "pi", None)
        if encoder is None or head is None:
            raise UnsupportedError(
                f"`{type(self).__name__}` has no encoder and head of a policy",
                hint="override `policy_parts`",
            )
        return encoder, head

    def load_state_dict(self, state: Mapping[str, TorchTensor], **options: object) -> TorchTensor:
        """Take weights, as `set_state` does, and pack them if the module only acts.

        Args:
            state: The weights.
            options: Options of PyTorch.

        Returns:
            What PyTorch returns.

        Raises:
            TrainingError: A weight is not finite.
        """
        found = super().load_state_dict(state, **options)
        if self._quantized is not None:
            self._quantized[0].update()
        return found

    def _forward(self, batch: Mapping[str, TorchTensor], **options: object) -> TorchTensor:
        if not self.inference_only:
            return super()._forward(batch, **options)
        return self._acted(batch, super()._forward)

    def _acted(
        self, batch: Mapping[str, TorchTensor], exact: Callable[..., Mapping[str, TorchTensor]]
    ) -> dict[str, TorchTensor]:
        """The inputs of the distribution of actions, by the quantized network.

        exact: the computation in float, with which the parts are compared on the first batch.
        """
        if self._quantized is None:
            self._quantized = self._begin()
            self._check(batch, exact(batch))
        network, tail = self._quantized
        return {Columns.ACTION_DIST_INPUTS: tail(network(batch[Columns.OBS]))}

    def _check(self, batch: Mapping[str, TorchTensor], wanted: Mapping[str, TorchTensor]) -> None:
        """Raise UnsupportedError unless encoder and head are all that the module computes."""
        encoder, head = self.policy_parts()
        found = head(encoder(batch)[ENCODER_OUT])
        if set(wanted) == {Columns.ACTION_DIST_INPUTS}:
            exact = wanted[Columns.ACTION_DIST_INPUTS]
            if exact.shape == found.shape and torch.allclose(exact, found, rtol=NEAR, atol=NEAR):
                return
        self._quantized = None
        raise UnsupportedError(
            f"`{type(self).__name__}` computes more than its encoder and head: {sorted(wanted)}",
            hint="override `policy_parts`, or act in float",
        )

    def _begin(self) -> tuple[QuantizedNetwork, TorchModule]:
        """The quantized network, and what the head does behind its layers."""
        encoder, head = self.policy_parts()
        if type(encoder) is not TorchMLPEncoder:
            raise UnsupportedError(
                f"actors do not support the encoder `{type(encoder).__name__}`",
                node=type(self).__name__,
                hint="encoders of vectors, without states: TorchMLPEncoder",
            )
        if type(head) not in HEADS:
            raise UnsupportedError(
                f"actors do not support the head `{type(head).__name__}`",
                node=type(self).__name__,
                hint=f"heads: {', '.join(kind.__name__ for kind in HEADS)}",
            )
        layers = (encoder.net.mlp, head.net.mlp)
        network = QuantizedNetwork(*layers, bits=self.actor_bits, level=self.actor_level)
        tail = copy.copy(head)  # with the same parameters, such as deviations
        tail._modules = {**head._modules, "net": nn.Identity()}
        return network, tail


class QuantizedPPOModule(QuantizedActing, DefaultPPOTorchRLModule):  # type: ignore[misc]
    """PPO's module, which collects with quantized weights.

    Examples:
        >>> from ray.rllib.core.rl_module.rl_module import RLModuleSpec
        >>> from qgraph.rl.rllib import QuantizedPPOModule
        >>> spec = RLModuleSpec(module_class=QuantizedPPOModule)
    """


class QuantizedSACModule(QuantizedActing, DefaultSACTorchRLModule):  # type: ignore[misc]
    """SAC's module, which collects with quantized weights.

    Examples:
        >>> from ray.rllib.core.rl_module.rl_module import RLModuleSpec
        >>> from qgraph.rl.rllib import QuantizedSACModule
        >>> spec = RLModuleSpec(module_class=QuantizedSACModule)
    """

    def _forward_inference(self, batch: Mapping[str, TorchTensor]) -> dict[str, TorchTensor]:
        if not self.inference_only:
            return dict(super()._forward_inference(batch))
        return self._acted(batch, super()._forward_inference)
