"""Collectors of TorchRL whose workers act with quantized copies of a policy."""

import numpy as np
import pytest

pytest.importorskip("torchrl", reason="pip install 'qgraph-compiler[torchrl]'")

import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.collectors import MultiSyncCollector
from torchrl.envs import GymEnv
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal

from qgraph.errors import UnsupportedError, UsageError
from qgraph.rl.pytorch import QuantizedNetwork
from qgraph.rl.torchrl import QuantizedWeightSync, quantized_policy, update_policy

torch.set_num_threads(1)


def network(kind=MLP):
    torch.manual_seed(0)
    if kind is MLP:
        return MLP(in_features=3, out_features=2, num_cells=[64, 64])
    return nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 2))


def policy_of(layers):
    module = TensorDictModule(
        nn.Sequential(layers, NormalParamExtractor()), ["observation"], ["loc", "scale"]
    )
    return ProbabilisticActor(module, ["loc", "scale"], ["action"], distribution_class=TanhNormal)


def pendulum():
    return GymEnv("Pendulum-v1")


def outputs_of(policy, observations):
    found = policy(TensorDict({"observation": observations}, observations.shape[:-1]))
    return torch.cat([found["loc"], found["scale"]], -1)


@pytest.mark.parametrize("kind", [MLP, nn.Sequential])
def test_the_network_acts_quantized_and_the_rest_as_it_did(kind):
    layers, x = network(kind), torch.randn(9, 3)
    acting = quantized_policy(policy_of(layers), bits=8)
    parts = layers.children() if kind is MLP else [layers]
    found = NormalParamExtractor()(QuantizedNetwork(*parts)(x))
    assert torch.equal(outputs_of(acting, x), torch.cat(found, -1))
    assert not [*acting.parameters()]


def test_other_parameters_are_copied_too():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.offset, self.layers = nn.Parameter(torch.zeros(2)), network()

        def forward(self, x):
            return self.layers(x) + self.offset

    policy, x = policy_of(Shifted()), torch.randn(4, 3)
    acting = quantized_policy(policy)
    with torch.no_grad():
        policy.module[0].module[0].offset.add_(3)
        policy.module[0].module[0].layers[0].weight.mul_(-1)
    update_policy(acting, policy)
    assert torch.equal(outputs_of(acting, x), outputs_of(quantized_policy(policy), x))
    with pytest.raises(UsageError, match="offset"):
        update_policy(acting, policy_of(network()))


def test_a_network_that_reshapes_is_quantized_layer_by_layer():
    layers = MLP(in_features=3, out_features=(2, 1), num_cells=[8])
    acting = quantized_policy(layers)
    assert acting(torch.zeros(5, 3)).shape == (5, 2, 1)
    assert [type(module) for module in acting].count(QuantizedNetwork) == 2


def test_a_policy_without_layers_is_refused():
    with pytest.raises(UnsupportedError, match="no network that actors support"):
        quantized_policy(TensorDictModule(nn.Tanh(), ["observation"], ["action"]))


@pytest.mark.extra
@pytest.mark.slow
def test_workers_act_by_the_weights_that_are_sent():
    policy = policy_of(network())
    acting = quantized_policy(policy, bits=8)
    collector = MultiSyncCollector(
        [pendulum, pendulum],
        acting,
        frames_per_batch=64,
        total_frames=192,
        weight_sync_schemes={"policy": QuantizedWeightSync(policy, acting)},
    )
    try:
        for step, batch in enumerate(collector):
            wanted = outputs_of(quantized_policy(policy), batch["observation"])
            assert torch.equal(batch["loc"], wanted[..., :1]), step
            torch.testing.assert_close(batch["scale"], wanted[..., 1:])  # softplus of TorchRL
            with torch.no_grad():
                for weight in policy.parameters():
                    weight.add_(0.3 * torch.randn_like(weight))
            collector.update_policy_weights_()
    finally:
        collector.shutdown()
    assert step == 2


def test_only_weights_of_the_policy_are_sent():
    policy = policy_of(network())
    acting = quantized_policy(policy)
    scheme = QuantizedWeightSync(policy, acting)
    sent = scheme.prepare_weights(None, "policy", scheme.strategy)
    (block,) = sent.values(True, True)
    assert block.dtype == torch.uint8
    bytes_of_float = sum(4 * weight.numel() for weight in policy.parameters())
    assert len(block) < bytes_of_float
    for given in (policy, acting, TensorDict.from_module(policy)):
        assert scheme.prepare_weights(given, "policy", scheme.strategy).keys() == sent.keys()
    for given in (policy_of(network()), TensorDict.from_module(policy_of(network())), {}):
        with pytest.raises(UsageError, match="only the weights of the policy"):
            scheme.prepare_weights(given, "policy", scheme.strategy)
    with torch.no_grad():
        policy.module[0].module[0][0].weight.mul_(2)
    again = scheme.prepare_weights(None, "policy", scheme.strategy)
    assert not np.array_equal(*(next(iter(x.values(True, True))) for x in (sent, again)))
