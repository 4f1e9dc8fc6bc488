"""Collection with a quantized actor: the policy learns in float and acts in packed form."""

from __future__ import annotations

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.sac.policies import LOG_STD_MAX, LOG_STD_MIN

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchTensor
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.sb3.families import ARS, family_of
from qgraph.rl.sb3.read import Sb3Policy, read_normalized


class QuantizedCollection(BaseCallback):  # type: ignore[misc]  # sb3 is not type-checked
    """Acts with quantized weights while a model collects experience; the model learns in float.

    Actions and their log probabilities are those of the quantized policy, so PPO's ratios are
    correct. Critics, exploration and evaluation, such as by `EvalCallback`, do not change:
    deterministic predictions are not part of the collection.

    If `learn` ends by an exception, call `release`: the model then acts in float again.

    Args:
        bits: Bits of weights.
        update_period: Steps after which the actor takes new weights, at the start of a collection.
        level: CPU instructions to use, as in `qgraph.rl.actor.Actor`.
        verbose: Level of messages, as in stable-baselines3.

    Attributes:
        versions: Number of packed blocks.
        steps: Number of actions.

    Examples:
        >>> from stable_baselines3 import PPO
        >>> from qgraph.rl.sb3 import QuantizedCollection
        >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu")
        >>> collection = QuantizedCollection(bits=8)
        >>> _ = model.learn(64, callback=collection)
        >>> collection.steps
        64
    """

    def __init__(
        self, bits: int = 8, update_period: int = 1, level: str = "auto", verbose: int = 0
    ) -> None:
        super().__init__(verbose)
        self.bits, self.update_period, self.level = bits, update_period, level
        self.versions = self.steps = 0

    def _on_training_start(self) -> None:
        if family_of(self.model.policy) is ARS:
            raise UnsupportedError("ARS acts with perturbed copies of its weights, in float only")
        self.network: Sb3Policy = read_normalized(self.model)
        self.packer = Packer(self.network.program, self.bits)
        self.actor: Actor | None = None
        self.packed_at = 0

    def _on_rollout_start(self) -> None:
        if self.actor is None or self.num_timesteps - self.packed_at >= self.update_period:
            self.versions += 1
            self.packed_at = self.num_timesteps
            block = self.packer.pack(self.network.weights, self.versions)
            if self.actor is None:
                self.actor = Actor(block, self.level)
            else:
                self.actor.switch(block, check="header")
        policy = self.model.policy
        if self.network.head.kind in ("categorical", "gaussian"):
            policy.forward = self._forward
        else:
            policy._predict = self._predict

    def release(self) -> None:
        """Restore the policy, so that the model acts in float again."""
        for name in ("forward", "_predict"):
            vars(self.model.policy).pop(name, None)

    def _on_rollout_end(self) -> None:
        self.release()

    def _on_training_end(self) -> None:
        self.release()

    def _on_step(self) -> bool:
        return True

    def _outputs(self, observations: TorchTensor) -> TorchTensor:
        assert self.actor is not None
        seen = self.network.to_program_layout(observations.cpu().numpy())
        self.steps += len(seen)
        return torch.from_numpy(self.actor(seen)).to(observations.device)

    def _forward(
        self, observations: TorchTensor, deterministic: bool = False
    ) -> tuple[TorchTensor, TorchTensor, TorchTensor]:
        """The results of `ActorCriticPolicy.forward`: actions, values, log probabilities."""
        policy, outputs = self.model.policy, self._outputs(observations)
        if isinstance(policy.action_dist, DiagGaussianDistribution):
            drawn = policy.action_dist.proba_distribution(outputs, policy.log_std)
        else:
            drawn = policy.action_dist.proba_distribution(action_logits=outputs)
        actions = drawn.get_actions(deterministic=deterministic)
        values = policy.predict_values(observations)
        return actions.reshape(-1, *policy.action_space.shape), values, drawn.log_prob(actions)

    def _predict(self, observations: TorchTensor, deterministic: bool = False) -> TorchTensor:
        """The result of `_predict` of DQN, TD3, DDPG and SAC, which collect with
        `deterministic=False`.
        """
        policy = self.model.policy
        if deterministic:
            return type(policy)._predict(policy, observations, deterministic=True)
        outputs, head = self._outputs(observations), self.network.head
        if head.kind == "argmax":
            return outputs.argmax(1).reshape(-1)
        if head.kind == "scale":
            return outputs
        mean, log_std = outputs.chunk(2, -1)
        held = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        return policy.actor.action_dist.actions_from_params(mean, held)
