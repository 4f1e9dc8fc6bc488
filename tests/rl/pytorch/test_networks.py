"""Networks of PyTorch that act quantized: their bits, their blocks, and what is refused."""

import copy
import pickle

import numpy as np
import pytest

pytest.importorskip("torch", reason="pip install torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from qgraph.errors import LoadError, TrainingError, UnsupportedError, UsageError
from qgraph.rl.actor import Actor, Packer, end_bits
from qgraph.rl.pytorch import QuantizedNetwork, read_network

torch.set_num_threads(1)


def dense(hidden=24, activation=nn.Tanh):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, hidden), activation(), nn.Linear(hidden, 3))


def convolutional():
    torch.manual_seed(0)
    return (
        nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()),
        nn.Sequential(nn.Linear(8 * 5 * 4, 16), nn.ReLU()),
        nn.Linear(16, 2),
    )


def actor_of(network, bits):
    packer = Packer(network.program, bits, *end_bits(network.program, bits))
    return Actor(packer.pack(network.weights))


@pytest.mark.parametrize("bits", [32, 16, 8, 4])
def test_outputs_are_those_of_the_actor_bit_for_bit(bits):
    module, x = dense(), torch.randn(33, 5)
    network, quantized = read_network(module), QuantizedNetwork(module, bits=bits)
    assert np.array_equal(quantized(x).numpy(), actor_of(network, bits)(x.numpy()))
    if bits == 32:
        torch.testing.assert_close(quantized(x), module(x).detach(), rtol=1e-5, atol=1e-6)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3), max_size=3))
def test_any_axes_in_front_are_samples(front):
    quantized, x = QuantizedNetwork(dense()), torch.randn(*front, 5)
    found = quantized(x)
    assert found.shape == (*front, 3)
    rows = [quantized(row) for row in x.reshape(-1, 5)]
    if rows:
        assert torch.equal(found.reshape(-1, 3), torch.stack(rows))


def test_images_are_turned_and_divided():
    modules = convolutional()
    x = torch.randint(0, 256, (4, 3, 9, 8), dtype=torch.uint8)
    wanted = x / 255
    for module in modules:
        wanted = module(wanted)
    found = QuantizedNetwork(*modules, shape=(3, 9, 8), divisor=255, bits=32)(x)
    torch.testing.assert_close(found, wanted.detach(), rtol=1e-4, atol=1e-5)
    network = read_network(*modules, shape=(3, 9, 8), divisor=255)
    rows = np.moveaxis(x.numpy(), 1, -1)
    found = QuantizedNetwork(*modules, shape=(3, 9, 8), divisor=255)(x)
    assert np.array_equal(found.numpy(), actor_of(network, 8)(rows))


def test_the_modules_learn_on_and_the_network_follows_when_it_is_updated():
    module, x = dense(), torch.randn(6, 5)
    quantized = QuantizedNetwork(module)
    before = quantized(x)
    with torch.no_grad():
        module[0].weight.mul_(-1)
    assert torch.equal(quantized(x), before)
    quantized.update()
    assert torch.equal(quantized(x), QuantizedNetwork(module)(x))
    assert not torch.equal(quantized(x), before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_acts_by_the_state_that_it_is_given(copied):
    module, x = dense(), torch.randn(6, 5)
    quantized = QuantizedNetwork(module)
    other = copied(quantized)
    assert torch.equal(other(x), quantized(x)) and [*other.state_dict()] == ["block"]
    with torch.no_grad():
        module[2].bias.add_(1)
    quantized.update()
    assert not torch.equal(other(x), quantized(x))
    other.load_state_dict(quantized.state_dict())
    assert torch.equal(other(x), quantized(x))
    with pytest.raises(UsageError, match="no modules to update from"):
        other.update()


def test_a_block_that_is_still_being_written_is_not_used(monkeypatch):
    module, x = dense(64), torch.randn(6, 5)
    quantized = QuantizedNetwork(module)
    other = copy.deepcopy(quantized)
    before = other(x)
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(-1)
    quantized.update()
    half = len(other.block) // 2
    other.block[:half] = quantized.block[:half]
    assert torch.equal(other(x), before) and other.refused == 1
    other.block[half:] = quantized.block[half:]
    assert torch.equal(other(x), quantized(x)) and other.refused == 1
    other.block[-1] ^= 1
    other.block[16] ^= 1  # the checksum: the header has changed too
    assert torch.equal(other(x), quantized(x)) and other.refused == 2
    monkeypatch.setattr("qgraph.rl.pytorch.acting.WAIT", -1.0)
    with pytest.raises(LoadError, match="checksum"):
        other(x)


def test_weights_that_are_not_finite_leave_the_block():
    module, x = dense(), torch.randn(6, 5)
    quantized = QuantizedNetwork(module)
    before = quantized(x)
    with torch.no_grad():
        module[0].weight[0, 0] = np.nan
    with pytest.raises(TrainingError, match="NaN"):
        quantized.update()
    assert torch.equal(quantized(x), before)
    with pytest.raises(UsageError, match="not finite"):
        quantized(torch.full((5,), np.inf))


def test_reading_leaves_the_training_of_each_part():
    module = nn.Sequential(dense(), nn.Dropout(), nn.Linear(3, 2))
    module.train()
    module[1].eval()
    read_network(module)
    assert module[0].training and not module[1].training and module.training


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    module = dense()
    module[0].register_forward_hook(lambda module, given, found: found + 1)
    return module


REFUSED = {
    "a subclass": (lambda: nn.Sequential(Doubled(5, 3)), {}, "support `Doubled`"),
    "a hook": (hooked, {}, "do not compute what their classes do"),
    "a module": (lambda: nn.Sequential(nn.Linear(5, 3), nn.GELU()), {}, "support `GELU`"),
    "no layer": (lambda: nn.Sequential(nn.Tanh()), {"shape": (5,)}, "no layer with weights"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_by_name(name):
    module, options, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=reason):
        QuantizedNetwork(module(), **options)


def test_a_shape_is_asked_for_where_it_is_needed():
    with pytest.raises(UsageError, match="shape of an observation is needed"):
        QuantizedNetwork(*convolutional())
    with pytest.raises(UsageError, match=r"are \[..., 5\], not \[2, 4\]"):
        QuantizedNetwork(dense())(torch.zeros(2, 4))
