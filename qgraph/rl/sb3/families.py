"""The policy classes that are read, and how each computes its actions.

Classes are looked up exactly: a subclass, such as RecurrentPPO's, may compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from gymnasium import spaces
from stable_baselines3.common import policies as common
from stable_baselines3.common.distributions import (
    BernoulliDistribution,
    CategoricalDistribution,
    DiagGaussianDistribution,
    MultiCategoricalDistribution,
)
from stable_baselines3.dqn import policies as dqn
from stable_baselines3.sac import policies as sac
from stable_baselines3.td3 import policies as td3

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule, TorchTensor
from qgraph.rl.actor.program_state import ProgramState
from qgraph.rl.pytorch.modules import states_of_lstm
from qgraph.rl.sb3.modules import Sb3ModuleReader

ALGORITHMS = (
    "A2C, PPO, DQN, DDPG, TD3 and SAC, and of sb3_contrib TRPO, RecurrentPPO, MaskablePPO, QRDQN, "
    "TQC, CrossQ and ARS, with MlpPolicy, CnnPolicy or MultiInputPolicy"
)


@dataclass(frozen=True)
class Family:
    """Policy classes that compute their actions in the same way.

    read: adds their modules to a reader; outputs: the same computed by torch, observations
    [n, ...] to what the head takes; head: the kind of head, which refuses action spaces. masks:
    whether valid actions are given. states: those of the actor. steps: for policies with states,
    observations and states to what the head takes and the next states.
    """

    read: Callable[[Sb3ModuleReader, TorchModule], None]
    outputs: Callable[[TorchModule, TorchTensor], TorchTensor]
    head: Callable[[TorchModule], str | None]
    masks: bool = False
    states: Callable[[TorchModule], tuple[ProgramState, ...]] = lambda policy: ()
    steps: Callable[..., tuple[TorchTensor, ...]] | None = None


def family_of(policy: TorchModule) -> Family:
    """The family of a policy. Raises UnsupportedError for a class that is not supported."""
    found = families().get(type(policy))
    if found is None:
        raise UnsupportedError(
            f"policy `{type(policy).__name__}` is not supported",
            hint=f"supported: those of {ALGORITHMS}",
        )
    return found


def _read_actor_critic(reader: Sb3ModuleReader, policy: TorchModule) -> None:
    shared = policy.share_features_extractor
    reader.features(policy.features_extractor if shared else policy.pi_features_extractor)
    reader.modules(policy.mlp_extractor.policy_net, "policy_net")
    reader.module(policy.action_net, "action_net")


def _run_actor_critic(policy: TorchModule, observation: TorchTensor) -> TorchTensor:
    found = policy.extract_features(observation)
    latent = found if policy.share_features_extractor else found[0]
    return policy.action_net(policy.mlp_extractor.forward_actor(latent))


def _actor_critic_head(policy: TorchModule) -> str | None:
    if type(policy.action_dist) is DiagGaussianDistribution and policy.squash_output:
        return None
    return _heads().get(type(policy.action_dist))


@cache
def _heads() -> Mapping[type, str]:
    """The head of each distribution of actions."""
    found: dict[type, str] = {
        CategoricalDistribution: "categorical",
        DiagGaussianDistribution: "gaussian",
        MultiCategoricalDistribution: "multi_categorical",
        BernoulliDistribution: "bernoulli",
    }
    try:
        from sb3_contrib.common.maskable import distributions as maskable
    except ImportError:
        return found
    return {
        **found,
        maskable.MaskableCategoricalDistribution: "categorical",
        maskable.MaskableMultiCategoricalDistribution: "multi_categorical",
        maskable.MaskableBernoulliDistribution: "multi_categorical",  # two options a switch
    }


def _read_recurrent(reader: Sb3ModuleReader, policy: TorchModule) -> None:
    reader.features(_recurrent_extractor(policy))
    reader.lstm(policy.lstm_actor, LSTM)
    reader.modules(policy.mlp_extractor.policy_net, "policy_net")
    reader.module(policy.action_net, "action_net")


def _recurrent_extractor(policy: TorchModule) -> TorchModule:
    shared = policy.share_features_extractor
    return policy.features_extractor if shared else policy.pi_features_extractor


def _recurrent_states(policy: TorchModule) -> tuple[ProgramState, ...]:
    return states_of_lstm(policy.lstm_actor, LSTM)


def _step_recurrent(
    policy: TorchModule, observation: TorchTensor, *states: TorchTensor
) -> tuple[TorchTensor, ...]:
    """Outputs in front of the head, and next states, of observations and states [n, units]."""
    extract = common.BaseModel.extract_features
    x, lstm, after = (
        extract(policy, observation, _recurrent_extractor(policy)),
        policy.lstm_actor,
        [],
    )
    for layer in range(lstm.num_layers):
        hidden, cell = states[2 * layer : 2 * layer + 2]
        weights = [getattr(lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh")]
        biases = [
            getattr(lstm, f"{name}_l{layer}") if lstm.bias else None
            for name in ("bias_ih", "bias_hh")
        ]
        gates = torch.nn.functional.linear(x, weights[0], biases[0])
        gates = gates + torch.nn.functional.linear(hidden, weights[1], biases[1])
        i, f, g, o = gates.chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        x = o.sigmoid() * cell.tanh()
        after += [x, cell]
    return policy.action_net(policy.mlp_extractor.forward_actor(x)), *after


def _no_outputs(policy: TorchModule, observation: TorchTensor) -> TorchTensor:
    raise UnsupportedError("a recurrent policy has no outputs without its states")


def _read_dqn(reader: Sb3ModuleReader, policy: TorchModule) -> None:
    reader.features(policy.q_net.features_extractor)
    reader.modules(policy.q_net.q_net, "q_net")


def _read_qrdqn(reader: Sb3ModuleReader, policy: TorchModule) -> None:
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


def _read_td3(reader: Sb3ModuleReader, policy: TorchModule) -> None:
    reader.features(policy.actor.features_extractor)
    reader.modules(policy.actor.mu, "actor")


def _read_sac(reader: Sb3ModuleReader, policy: TorchModule) -> None:
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


def _read_ars(reader: Sb3ModuleReader, policy: TorchModule) -> None:
    reader.features(policy.features_extractor)
    reader.modules(policy.action_net, "action_net")


def _run_ars(policy: TorchModule, observation: TorchTensor) -> TorchTensor:
    return policy.action_net(policy.extract_features(observation, policy.features_extractor))


def _ars_head(policy: TorchModule) -> str | None:
    if isinstance(policy.action_space, spaces.Discrete):
        return "argmax"
    return "scale" if policy.squash_output else "clip"


LSTM = "lstm_actor"
ACTOR_CRITIC = Family(_read_actor_critic, _run_actor_critic, _actor_critic_head)
MASKABLE = replace(ACTOR_CRITIC, masks=True)
RECURRENT = Family(
    _read_recurrent, _no_outputs, _actor_critic_head, False, _recurrent_states, _step_recurrent
)
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
        common.MultiInputActorCriticPolicy: ACTOR_CRITIC,
        dqn.DQNPolicy: DQN,
        dqn.CnnPolicy: DQN,
        dqn.MultiInputPolicy: DQN,
        td3.TD3Policy: TD3,
        td3.CnnPolicy: TD3,
        td3.MultiInputPolicy: TD3,
        sac.SACPolicy: SAC,
        sac.CnnPolicy: SAC,
        sac.MultiInputPolicy: SAC,
    }
    try:
        from sb3_contrib.ars import policies as ars
        from sb3_contrib.common.maskable import policies as maskable
        from sb3_contrib.common.recurrent import policies as recurrent
        from sb3_contrib.crossq import policies as crossq
        from sb3_contrib.qrdqn import policies as qrdqn
        from sb3_contrib.tqc import policies as tqc
    except ImportError:  # missing, or older than CrossQ: there can be no models of it
        return found
    return {
        **found,
        qrdqn.QRDQNPolicy: QRDQN,
        qrdqn.CnnPolicy: QRDQN,
        qrdqn.MultiInputPolicy: QRDQN,
        tqc.TQCPolicy: SAC,
        tqc.CnnPolicy: SAC,
        tqc.MultiInputPolicy: SAC,
        crossq.CrossQPolicy: SAC,
        ars.ARSPolicy: ARS,
        ars.ARSLinearPolicy: ARS,
        maskable.MaskableActorCriticPolicy: MASKABLE,
        maskable.MaskableActorCriticCnnPolicy: MASKABLE,
        maskable.MaskableMultiInputActorCriticPolicy: MASKABLE,
        recurrent.RecurrentActorCriticPolicy: RECURRENT,
        recurrent.RecurrentActorCriticCnnPolicy: RECURRENT,
        recurrent.RecurrentMultiInputActorCriticPolicy: RECURRENT,
    }
