"""A stable-baselines3 policy as an ONNX file, for `qgraph rl quantize` and others."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.sac.policies import SACPolicy


def export_onnx(model: Any, path: str | Path) -> Path:
    """Write what the actor computes: `observation` to `action`, outputs before any head.

    Observations are as the model has them, uint8 images too, [n, ...] float32 in the file.
    """
    policy = model.policy

    class Actor(torch.nn.Module):  # type: ignore[misc]
        def forward(self, observation: Any) -> Any:
            if isinstance(policy, ActorCriticPolicy):
                found = policy.extract_features(observation)
                shared = policy.share_features_extractor
                latent = policy.mlp_extractor.forward_actor(found if shared else found[0])
                return policy.action_net(latent)
            if isinstance(policy, DQNPolicy):
                return policy.q_net(observation)
            if isinstance(policy, SACPolicy):
                features = policy.actor.extract_features(
                    observation, policy.actor.features_extractor
                )
                latent = policy.actor.latent_pi(features)
                return torch.cat([policy.actor.mu(latent), policy.actor.log_std(latent)], -1)
            return policy.actor(observation)

    actor = Actor()
    actor.policy = policy  # so that its parameters are found
    actor.eval()
    sample = torch.zeros(2, *model.observation_space.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            actor, (sample,), str(path), input_names=["observation"], output_names=["action"],
            dynamic_axes={"observation": {0: "n"}, "action": {0: "n"}}, dynamo=False,
        )  # fmt: skip
    return Path(path)
