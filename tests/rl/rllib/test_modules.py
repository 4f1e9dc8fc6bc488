"""Modules of RLlib that act quantized in environment runners and learn in float."""

import pytest

pytest.importorskip("ray.rllib", reason="pip install 'ray[rllib]' torch", exc_type=ImportError)

from dataclasses import asdict

import numpy as np
import torch
from gymnasium import spaces
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from qgraph.errors import UnsupportedError
from qgraph.rl.pytorch import QuantizedNetwork
from qgraph.rl.rllib import QuantizedActing, QuantizedPPOModule, QuantizedSACModule

torch.set_num_threads(1)
BOX, CHOICE = spaces.Box(-2.0, 2.0, (2,)), spaces.Discrete(3)
LOGITS = Columns.ACTION_DIST_INPUTS


def module_of(kind, actions, inference_only=True, observations=None, **config):
    torch.manual_seed(0)
    settings = asdict(DefaultModelConfig(fcnet_hiddens=[32, 32], **config))
    if kind is QuantizedSACModule:
        settings = {
            "fcnet_hiddens": [32, 32], "fcnet_activation": "relu", "head_fcnet_hiddens": [16],
            "head_fcnet_activation": "relu", "twin_q": True,
        }  # fmt: skip
    return kind(
        observation_space=observations or spaces.Box(-9.0, 9.0, (4,)),
        action_space=actions,
        inference_only=inference_only,
        model_config=settings,
    )


CASES = {
    "choices": (QuantizedPPOModule, CHOICE, {}),
    "numbers": (QuantizedPPOModule, BOX, {}),
    "numbers, free deviations": (QuantizedPPOModule, BOX, {"free_log_std": True}),
    "shared layers": (QuantizedPPOModule, CHOICE, {"vf_share_layers": True}),
    "SAC": (QuantizedSACModule, BOX, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_runners_act_quantized_by_the_weights_of_the_learner(name):
    kind, actions, config = CASES[name]
    acting = module_of(kind, actions, **config)
    learner = module_of(kind, actions, False, **config)
    batch = {Columns.OBS: torch.randn(7, 4)}
    for _ in range(2):
        with torch.no_grad():
            for weight in learner.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
        acting.set_state(learner.get_state(inference_only=True))
        encoder, head = learner.policy_parts()
        layers = QuantizedNetwork(encoder.net.mlp, head.net.mlp)(batch[Columns.OBS])
        for forward in (acting.forward_exploration, acting.forward_inference):
            found = forward(batch)[LOGITS]
            assert torch.equal(found[:, : layers.shape[1]], layers)
            exact = learner.forward_inference(batch)[LOGITS]
            assert 0 < (found - exact).abs().max() < 0.05
    assert set(acting.get_state()) == set(learner.get_state(inference_only=True))


def test_learners_compute_in_float():
    learner, plain = (
        module_of(kind, CHOICE, False) for kind in (QuantizedPPOModule, DefaultPPOTorchRLModule)
    )
    batch = {Columns.OBS: torch.randn(7, 4)}
    plain.set_state(learner.get_state())
    for name in ("forward_train", "forward_exploration", "forward_inference"):
        ours, theirs = (getattr(each, name)(batch)[LOGITS] for each in (learner, plain))
        assert torch.equal(ours, theirs)


class Scaled(QuantizedActing, DefaultPPOTorchRLModule):
    def _acted(self, batch, exact):
        return super()._acted(batch, lambda given: {LOGITS: 2 * exact(given)[LOGITS]})


def test_what_actors_do_not_compute_is_refused():
    batch = {Columns.OBS: torch.randn(7, 4)}
    with pytest.raises(UnsupportedError, match="computes more than its encoder and head"):
        module_of(Scaled, CHOICE).forward_exploration(batch)
    images = spaces.Box(0, 255, (42, 42, 3), np.uint8)
    module = module_of(QuantizedPPOModule, CHOICE, observations=images)
    with pytest.raises(UnsupportedError, match="TorchCNNEncoder"):
        module.forward_exploration({Columns.OBS: torch.zeros(1, 42, 42, 3)})


def test_an_environment_runner_collects_quantized():
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=3)
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=QuantizedPPOModule,
                model_config=DefaultModelConfig(fcnet_hiddens=[32, 32]),
            )
        )
    )
    runner = SingleAgentEnvRunner(config=config)
    box = spaces.Box(-9.0, 9.0, (4,))
    learner = module_of(QuantizedPPOModule, spaces.Discrete(2), False, box)
    runner.set_state({"rl_module": learner.get_state(inference_only=True)})
    encoder, head = learner.policy_parts()
    acting = QuantizedNetwork(encoder.net.mlp, head.net.mlp)
    episodes = runner.sample(num_timesteps=30, random_actions=False)
    compared = 0
    for episode in episodes:
        logits = np.stack([*episode.get_extra_model_outputs(LOGITS)])
        seen = np.stack([*episode.get_observations()])[: len(logits)]
        assert np.array_equal(acting(torch.from_numpy(seen)).numpy(), logits)
        compared += len(logits)
    assert compared >= 30
    runner.stop()
