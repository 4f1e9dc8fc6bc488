"""Stable-baselines3: policies read, collection on quantized actors, training that is aware."""

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="pip install 'qgraph-compiler[sb3]'")

import gymnasium
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback

from qgraph.errors import UnsupportedError
from qgraph.rl.actor import Actor, Packer
from qgraph.rl.policy import floats, pack, read_policy
from qgraph.rl.policy.affine import Simulated
from qgraph.rl.policy.affine import dequantized as in_numpy
from qgraph.rl.policy.policy import Policy
from qgraph.rl.sb3 import QuantizationAware, QuantizedCollection, export_onnx, read
from qgraph.rl.sb3.aware import FakeQuantizedForward, dequantized, rounded_on_device
from qgraph.rl.sb3.families import family_of

torch.set_num_threads(1)


class Task(gymnasium.Env):
    """Observations and rewards of chance, ten steps."""

    def __init__(self, discrete=True, image=False):
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-2, 2, (2,))
        self.observation_space = (
            spaces.Box(0, 255, (3, 40, 44), np.uint8) if image else spaces.Box(-1, 1, (4,))
        )

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action):
        self.steps += 1
        return self._seen(), float(self.np_random.normal()), self.steps == 10, False, {}

    def _seen(self):
        if self.observation_space.dtype == np.uint8:
            return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)


def model_of(kind, discrete=True, image=False, **options):
    small = {"policy_kwargs": {"net_arch": [16, 16]}, "seed": 0, "device": "cpu"}
    if kind in (PPO, A2C):
        small["n_steps"] = 16
    if kind is PPO:
        small["batch_size"] = 16
    if kind not in (PPO, A2C):
        small.update(learning_starts=8, buffer_size=200, batch_size=8)
    policy = "CnnPolicy" if image else "MlpPolicy"
    return kind(policy, Task(discrete, image), **{**small, **options})


MODELS = {
    "PPO": (PPO, True), "A2C, numbers": (A2C, False), "DQN": (DQN, True), "SAC": (SAC, False),
    "TD3": (TD3, False), "DDPG": (DDPG, False),
}  # fmt: skip


def seen_by(model, n=5):
    rng, space = np.random.default_rng(0), model.observation_space
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (n, *space.shape), np.uint8)
    return rng.uniform(-1, 1, (n, 4)).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_programs_act_as_the_model_does(name):
    model = model_of(*MODELS[name])
    found, x = read(model), seen_by(model)
    outputs = floats.run(found.program, found.weights, found.to_program_layout(x))
    actions = found.head.actions(outputs[found.program.outputs[0]])
    wanted, _ = model.predict(x, deterministic=True)
    np.testing.assert_allclose(actions, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [DQN, PPO])
def test_images_are_turned_and_scaled(kind):
    model = model_of(kind, image=True)
    found, x = read(model), seen_by(model, 2)
    assert found.program.shape == (40, 44, 3)
    outputs = floats.run(found.program, found.weights, found.to_program_layout(x))
    tensor = torch.from_numpy(x)
    if kind is DQN:
        wanted = model.policy.q_net(tensor)
    else:
        wanted = model.policy.get_distribution(tensor).distribution.logits
    (made,) = outputs.values()
    wanted = wanted.detach().numpy()
    np.testing.assert_allclose(
        made - made.mean(-1, keepdims=True), wanted - wanted.mean(-1, keepdims=True), 1e-4, 1e-5
    )


@pytest.mark.parametrize("kind", [SAC, TD3, DDPG])
def test_numbers_are_chosen_from_images(kind):
    model = model_of(kind, discrete=False, image=True)
    found, x = read(model), seen_by(model, 2)
    outputs = floats.run(found.program, found.weights, found.to_program_layout(x))
    actions = found.head.actions(outputs[found.program.outputs[0]])
    wanted, _ = model.predict(x, deterministic=True)
    np.testing.assert_allclose(actions, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "image"), [("PPO", False), ("SAC", False), ("TD3", False), ("DQN", True)]
)
def test_policies_come_in_by_onnx(name, image, tmp_path):
    pytest.importorskip("onnxscript")
    model = model_of(*MODELS[name], image=image)
    network = read_policy(export_onnx(model, tmp_path / "p.onnx"))
    assert network.images_first == image
    direct, x = read(model), seen_by(model, 3)
    assert network.program.shape == direct.program.shape
    (wanted,) = floats.run(direct.program, direct.weights, direct.to_program_layout(x)).values()
    found = floats.run(network.program, network.weights, direct.to_program_layout(x))["action"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_models_learn_from_what_a_quantized_actor_collects(name):
    model, hook = model_of(*MODELS[name]), QuantizedCollection(bits=4)
    before = read(model).weights
    model.learn(40, callback=hook)
    assert hook.steps >= 16 and hook.versions > 1
    assert not {"forward", "_predict"} & set(vars(model.policy))
    after = read(model).weights
    assert any((after[key] != before[key]).any() for key in before)


@pytest.mark.parametrize("discrete", [True, False])
def test_log_probabilities_are_those_of_what_was_played(discrete):
    model, hook = model_of(PPO, discrete, n_epochs=1), QuantizedCollection(bits=2)
    start = read(model)
    packed, spread = (
        Packer(start.program, 2).pack(start.weights),
        model.policy.log_std.clone() if (not discrete) else None,
    )
    model.learn(16, callback=hook)
    buffer = model.rollout_buffer
    outputs = torch.from_numpy(Actor(packed)(buffer.observations.reshape(16, 4)))
    actions = torch.from_numpy(buffer.actions.reshape(16, -1))
    if discrete:
        drawn = torch.distributions.Categorical(logits=outputs)
        wanted = drawn.log_prob(actions.flatten())
    else:
        wanted = torch.distributions.Normal(outputs, spread.exp()).log_prob(actions).sum(-1)
    np.testing.assert_allclose(buffer.log_probs.ravel(), wanted.detach().numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_evaluated_while_collecting_is_the_float_policy(name):
    model, hook = model_of(*MODELS[name]), QuantizedCollection(bits=2)
    x, compared = seen_by(model, 64), []

    class Evaluation(BaseCallback):
        def _on_step(self):
            found, _ = model.predict(x, deterministic=True)
            network = read(model)
            outputs = floats.run(network.program, network.weights, network.to_program_layout(x))
            wanted = network.head.actions(outputs[network.program.outputs[0]])
            compared.append(np.abs(found - wanted).max())
            return True

    model.learn(40, callback=[hook, Evaluation()])
    assert hook.steps >= 16 and len(compared) >= 40 and max(compared) < 1e-5


def test_a_model_is_as_it_was_after_release():
    model, hook = model_of(SAC, False), QuantizedCollection()

    class Stops(BaseCallback):
        def _on_step(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.learn(40, callback=[hook, Stops()])
    assert "_predict" in vars(model.policy)
    hook.release()
    assert "_predict" not in vars(model.policy)


def test_new_weights_come_after_the_period():
    hook = QuantizedCollection(update_period=40)
    model_of(PPO).learn(96, callback=hook)
    assert hook.versions == 2  # at 0 and at 48


@pytest.mark.parametrize("bits", [2, 5, 8, 16])
@pytest.mark.parametrize("axes", [None, (1,)])
def test_torch_rounds_as_numpy_does(bits, axes):
    x = np.random.default_rng(bits).normal(0, 3, (6, 9)).astype(np.float32)
    x[0] = np.abs(x[0])
    x[1] = -np.abs(x[1])
    x[2] = 0
    for rounded_by in (dequantized, rounded_on_device):
        found = rounded_by(torch.from_numpy(x), bits, axes)
        np.testing.assert_array_equal(found, in_numpy(x, bits, axes))


def test_layers_notice_weights_that_change_behind_their_version():
    """stable-baselines3 updates target networks by `.data`, which PyTorch does not count."""
    layer = torch.nn.Linear(3, 2)
    forward, x = FakeQuantizedForward(layer, 3), torch.randn(4, 3)
    first = forward(x)
    assert torch.equal(forward(x), first)
    layer.weight.data.mul_(0.5)
    weight = in_numpy(layer.weight.detach().numpy(), 3)
    seen = dequantized(x, 3, (-1,))
    wanted = torch.nn.functional.linear(seen, torch.from_numpy(weight), layer.bias)
    assert torch.equal(forward(x), wanted)
    assert not torch.equal(forward(x), first)


def test_gradients_go_straight_through():
    x = torch.tensor([0.3, -1.2, 2.0], requires_grad=True)
    (dequantized(x, 3) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [1, 2, 3]


def test_training_is_aware_after_the_delay_and_layers_come_back():
    model, hook = model_of(PPO), QuantizationAware(bits=2, quant_delay=20)
    changed = []

    class Look(QuantizedCollection):
        def _on_step(self):
            layer = model.policy.action_net
            changed.append("forward" in vars(layer))
            return True

    model.learn(32, callback=[hook, Look()])
    assert changed == [False] * 19 + [True] * 13
    assert "forward" not in vars(model.policy.action_net)
    x = torch.randn(3, 16)
    hook.init_callback(model)
    hook.num_timesteps = 20
    hook._begin()
    layer = model.policy.action_net
    weight, bias = (p.detach().numpy() for p in (layer.weight, layer.bias))
    wanted = in_numpy(x.numpy(), 2, (1,)) @ in_numpy(weight, 2).T + bias
    np.testing.assert_allclose(layer(x).detach().numpy(), wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("name", "image"), [("PPO", False), ("SAC", False), ("TD3", False), ("DQN", True)]
)
def test_aware_training_computes_what_is_evaluated_afterwards(name, image, bits):
    model = model_of(*MODELS[name], image=image)
    hook, x = QuantizationAware(bits=bits), 3 * seen_by(model, 2 if image else 40)
    hook.init_callback(model)
    found = read(model)
    evaluated = Simulated.of(found.program, found.weights, bits)(found.to_program_layout(x))
    hook._begin()
    with torch.no_grad():
        trained = family_of(model.policy).outputs(model.policy, torch.from_numpy(x)).numpy()
    far = np.abs(trained - evaluated) > 1e-4 * np.abs(evaluated).max()
    # A number on the edge of two codes may fall to either side in float32.
    assert far.mean() < 0.02
    assert bits > 8 or not np.allclose(floats_of(found, x), trained, atol=1e-5)


def floats_of(found, x):
    (made,) = floats.run(found.program, found.weights, found.to_program_layout(x)).values()
    return made


def test_a_model_is_packed(tmp_path):
    from qgraph.rl.policy.read import PolicyNetwork

    model = model_of(SAC, False)
    found = read(model)
    network = PolicyNetwork(found.program, found.weights, None)
    policy, x = Policy(pack(network, found.head)), seen_by(model)
    wanted, _ = model.predict(x, deterministic=True)
    np.testing.assert_allclose(policy(x), wanted, atol=0.05)


def test_what_has_no_actor_is_refused():
    with pytest.raises(UnsupportedError, match="use_sde"):
        read(model_of(SAC, False, use_sde=True))
    odd = {"policy_kwargs": {"activation_fn": torch.nn.GELU}}
    with pytest.raises(UnsupportedError, match=r"policy_net\.1: actors do not support `GELU`"):
        read(model_of(PPO, **odd))
