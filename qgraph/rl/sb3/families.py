"""The policy classes that are read, and how each computes its actions.

Classes are looked up exactly: a subclass, such as RecurrentPPO's, may compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

import torch
from gymnasium import spaces
from stable_baselines3.common import policies as common
from stable_baselines3.common.distributions import (
    CategoricalDistribution,
    DiagGaussianDistribution,
)
from stable_baselines3.dqn import policies as dqn
from stable_baselines3.sac import policies as sac
from stable_baselines3.td3 import policies as td3

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule, TorchTensor
from qgraph.rl.sb3.modules import ModuleReader

ALGORITHMS = (
    "A2C, PPO, DQN, DDPG, TD3 and SAC, and of sb3_contrib TRPO, QRDQN, TQC, CrossQ and ARS, "
    "with MlpPolicy or CnnPolicy"
)


@dataclass(frozen=True)
class Family:
    """Policy classes that compute their actions in the same way.

    read: adds their modules to a reader; outputs: the same computed by torch, observations
    [n, ...] to what the head takes; head: the kind of head, which refuses action spaces.
    """

    read: Callable[[ModuleReader, TorchModule], None]
    outputs: Callable[[TorchModule, TorchTensor], TorchTensor]
    head: Callable[[TorchModule], str | None]


def family_of(policy: TorchModule) -> Family:
    """The family of a policy. Raises UnsupportedError for a class that is not supported."""
    found = families().get(type(policy))
    if found is None:
        name = type(policy).__name__
        why = next((text for part, text in REASONS.items() if part in name), "")
        raise UnsupportedError(
            f"policy `{name}` is not supported{why}", hint=f"supported: those of {ALGORITHMS}"
        )
    return found


# What classes that are refused would lose, by a part of their name.
REASONS: Mapping[str, str] = {
    "Recurrent": ": its LSTM carries state from step to step, which actors do not support",
    "Maskable": ": it needs the mask of valid actions, which no actor takes",
    "MultiInput": ": it takes a dictionary of observations, an actor one array",
}


def _read_actor_critic(reader: ModuleReader, policy: TorchModule) -> None:
    shared = policy.share_features_extractor
    reader.features(policy.features_extractor if shared else policy.pi_features_extractor)
    reader.modules(policy.mlp_extractor.policy_net, "policy_net")
    reader.module(policy.action_net, "action_net")


def _run_actor_critic(policy: TorchModule, observation: TorchTensor) -> TorchTensor:
    found = policy.extract_features(observation)
    latent = found if policy.share_features_extractor else found[0]
    return policy.action_net(policy.mlp_extractor.forward_actor(latent))


def _actor_critic_head(policy: TorchModule) -> str | None:
    if isinstance(policy.action_space, spaces.Discrete):
        return "categorical" if type(policy.action_dist) is CategoricalDistribution else None
    gaussian = type(policy.action_dist) is DiagGaussianDistribution and not policy.squash_output
    return "gaussian" if gaussian else None


def _read_dqn(reader: ModuleReader, policy: TorchModule) -> None:
    reader.features(policy.q_net.features_extractor)
    reader.modules(policy.q_net.q_net, "q_net")


def _read_qrdqn(reader: ModuleReader, policy: TorchModule) -> None:
    """The value of an action is the mean of its quantiles: a mean of the last layer's columns."""
    network = policy.quantile_net
    *before, last = network.quantile_net
    reader.features(network.features_extractor)
    reader.modules(before, "quantile_net")
    reader.linear(last, f"quantile_net.{len(before)}", partial(_mean_of_rows, network.n_quantiles))


def _mean_of_rows(quantiles: int, rows: TorchTensor) -> TorchTensor:
    """[quantiles * m, k] to [m, k], of arrays and tensors."""
    return rows.reshape(quantiles, -1, rows.shape[1]).mean(0)


def _run_qrdqn(policy: TorchModule, observation: TorchTensor) -> TorchTensor:
    network = policy.quantile_net
    *before, last = network.quantile_net
    latent = network.extract_features(observation, network.features_extractor)
    for module in before:
        latent = module(latent)
    weight = _mean_of_rows(network.n_quantiles, last.weight.detach())
    bias = _mean_of_rows(network.n_quantiles, last.bias.detach()[:, None])[:, 0]
    return torch.nn.functional.linear(latent, weight, bias)


def _read_td3(reader: ModuleReader, policy: TorchModule) -> None:
    reader.features(policy.actor.features_extractor)
    reader.modules(policy.actor.mu, "actor")


def _read_sac(reader: ModuleReader, policy: TorchModule) -> None:
    actor = policy.actor
    reader.features(actor.features_extractor)
    reader.modules(actor.latent_pi, "latent_pi")
    latent, flattened = reader.value, reader.flattened
    parts = []
    for name in ("mu", "log_std"):
        reader.value, reader.flattened = latent, flattened
        reader.module(getattr(actor, name), name)
        parts.append(reader.value)
    reader.add("concat", "output", *parts)


def _run_sac(policy: TorchModule, observation: TorchTensor) -> TorchTensor:
    actor = policy.actor
    latent = actor.latent_pi(actor.extract_features(observation, actor.features_extractor))
    return torch.cat([actor.mu(latent), actor.log_std(latent)], -1)


def _read_ars(reader: ModuleReader, policy: TorchModule) -> None:
    reader.features(policy.features_extractor)
    reader.modules(policy.action_net, "action_net")


def _run_ars(policy: TorchModule, observation: TorchTensor) -> TorchTensor:
    return policy.action_net(policy.extract_features(observation, policy.features_extractor))


def _ars_head(policy: TorchModule) -> str | None:
    if isinstance(policy.action_space, spaces.Discrete):
        return "argmax"
    return "scale" if policy.squash_output else "clip"


ACTOR_CRITIC = Family(_read_actor_critic, _run_actor_critic, _actor_critic_head)
DQN = Family(_read_dqn, lambda policy, seen: policy.q_net(seen), lambda policy: "argmax")
QRDQN = Family(_read_qrdqn, _run_qrdqn, lambda policy: "argmax")
TD3 = Family(_read_td3, lambda policy, seen: policy.actor(seen), lambda policy: "scale")
SAC = Family(_read_sac, _run_sac, lambda policy: "squashed_gaussian")
ARS = Family(_read_ars, _run_ars, _ars_head)


@cache
def families() -> Mapping[type, Family]:
    """Families by exact class; those of sb3_contrib if it is installed."""
    found: dict[type, Family] = {
        common.ActorCriticPolicy: ACTOR_CRITIC,
        common.ActorCriticCnnPolicy: ACTOR_CRITIC,
        dqn.DQNPolicy: DQN,
        dqn.CnnPolicy: DQN,
        td3.TD3Policy: TD3,
        td3.CnnPolicy: TD3,
        sac.SACPolicy: SAC,
        sac.CnnPolicy: SAC,
    }
    try:
        from sb3_contrib.ars import policies as ars
        from sb3_contrib.crossq import policies as crossq
        from sb3_contrib.qrdqn import policies as qrdqn
        from sb3_contrib.tqc import policies as tqc
    except ImportError:  # missing, or older than CrossQ: there can be no models of it
        return found
    return {
        **found,
        qrdqn.QRDQNPolicy: QRDQN,
        qrdqn.CnnPolicy: QRDQN,
        tqc.TQCPolicy: SAC,
        tqc.CnnPolicy: SAC,
        crossq.CrossQPolicy: SAC,
        ars.ARSPolicy: ARS,
        ars.ARSLinearPolicy: ARS,
    }
