"""Collection with a quantized actor: the policy learns in float and acts in packed form."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.sac.policies import LOG_STD_MAX, LOG_STD_MIN

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule, TorchTensor
from qgraph.ir.types import Array
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.sb3.families import ARS, family_of
from qgraph.rl.sb3.read import Sb3Policy, read_normalized

Observed = TorchTensor | Mapping[str, TorchTensor]
# Heads whose policies have a forward pass with actions, values and log probabilities.
ON_POLICY = ("categorical", "gaussian", "multi_categorical", "bernoulli")


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
        if self.network.states:
            policy.forward = self._recurrent_forward
        elif self.network.head.kind in ON_POLICY:
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

    def _seen(self, observations: Observed) -> Array:
        """Observations of the model, tensors, in the layout of the program."""
        if isinstance(observations, Mapping):
            parts = {name: x.cpu().numpy() for name, x in observations.items()}
            return self.network.to_program_layout(parts)
        return self.network.to_program_layout(observations.cpu().numpy())

    def _outputs(self, observations: Observed) -> TorchTensor:
        assert self.actor is not None
        seen = self._seen(observations)
        self.steps += len(seen)
        return torch.from_numpy(self.actor(seen)).to(self.model.device)

    def _forward(
        self,
        observations: Observed,
        deterministic: bool = False,
        action_masks: Array | None = None,
    ) -> tuple[TorchTensor, TorchTensor, TorchTensor]:
        """The results of `ActorCriticPolicy.forward`: actions, values, log probabilities."""
        drawn = self._drawn(self._outputs(observations))
        if action_masks is not None:
            drawn.apply_masking(action_masks)
        actions, chance = self._chosen(drawn, deterministic)
        return actions, self.model.policy.predict_values(observations), chance

    def _recurrent_forward(
        self,
        observations: Observed,
        lstm_states: TorchTensor,
        episode_starts: TorchTensor,
        deterministic: bool = False,
    ) -> tuple[TorchTensor, ...]:
        """The results of `RecurrentActorCriticPolicy.forward`, with states of the quantized actor.

        Values and states of the critic are those of the float policy.
        """
        assert self.actor is not None
        policy = self.model.policy
        exact = type(policy).forward(policy, observations, lstm_states, episode_starts)
        going = 1.0 - episode_starts.reshape(1, -1, 1)
        hidden, cell = (going * state for state in lstm_states.pi)  # [layers, n, units]
        before = [state for pair in zip(hidden, cell, strict=True) for state in pair]
        seen = self._seen(observations).reshape(len(episode_starts), -1)
        rows = np.concatenate([seen, *(state.cpu().numpy() for state in before)], -1)
        self.steps += len(rows)
        outputs = self.actor.run(np.ascontiguousarray(rows, np.float32))
        after = [outputs[state.output] for state in self.network.states]
        device = self.model.device
        states = (
            torch.from_numpy(np.stack(after[0::2])).to(device),
            torch.from_numpy(np.stack(after[1::2])).to(device),
        )
        drawn = self._drawn(torch.from_numpy(outputs[self.actor.outputs[0]]).to(device))
        actions, chance = self._chosen(drawn, deterministic)
        own = policy.lstm_critic is not None  # else the critic has the actor's states
        return actions, exact[1], chance, type(lstm_states)(states, exact[3].vf if own else states)

    def _drawn(self, outputs: TorchTensor) -> TorchModule:
        """The distribution of actions by outputs."""
        policy = self.model.policy
        if isinstance(policy.action_dist, DiagGaussianDistribution):
            return policy.action_dist.proba_distribution(outputs, policy.log_std)
        return policy.action_dist.proba_distribution(action_logits=outputs)

    def _chosen(self, drawn: TorchModule, deterministic: bool) -> tuple[TorchTensor, TorchTensor]:
        """Actions, and their log probabilities."""
        actions = drawn.get_actions(deterministic=deterministic)
        return actions.reshape(-1, *self.model.policy.action_space.shape), drawn.log_prob(actions)

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
