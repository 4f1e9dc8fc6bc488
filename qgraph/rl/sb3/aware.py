"""Quantization-aware training as in QuaRL: D(Q(x)) forward, straight-through backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch.nn import functional

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule, TorchTensor
from qgraph.rl.policy import affine
from qgraph.rl.policy.affine import FLOAT, HALF
from qgraph.rl.sb3.modules import layers


class QuantizationAware(BaseCallback):  # type: ignore[misc]  # sb3 is not type-checked
    """Trains actors and critics with quantized weights and layer inputs (QuaRL).

    The arithmetic is that of `qgraph.rl.policy.affine`: a dense kernel has one range, a convolution
    one per channel, and the input of a layer, also the observation, one per sample. Weights stay
    float32, and gradients pass as if nothing was rounded. When training ends, layers are restored.

    The last layer of a QRDQN is trained with one range for the kernels of all quantiles, but it is
    read as their mean, which has another range. Its evaluation therefore differs from its training.

    Args:
        bits: Bits of weights and of inputs of layers.
        quant_delay: Steps before quantization starts.
        verbose: Level of messages, as in stable-baselines3.

    Examples:
        >>> from stable_baselines3 import PPO
        >>> from qgraph.rl.sb3 import QuantizationAware
        >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu")
        >>> _ = model.learn(64, callback=QuantizationAware(bits=8))
    """

    def __init__(self, bits: int = 8, quant_delay: int = 0, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.bits, self.quant_delay = bits, quant_delay
        self._changed: list[TorchModule] = []

    def _on_training_start(self) -> None:
        self._begin()

    def _on_step(self) -> bool:
        self._begin()
        return True

    def _begin(self) -> None:
        if any(isinstance(module, torch.nn.LSTM) for module in self.model.policy.modules()):
            raise UnsupportedError(
                "the layers of an LSTM are not trained with quantized weights",
                hint="QuantizedCollection acts with quantized weights, and learns in float",
            )
        if self._changed or self.num_timesteps < self.quant_delay:
            return
        self._changed = list(layers(self.model.policy))
        for layer in self._changed:
            layer.forward = FakeQuantizedForward(layer, self.bits)

    def _on_training_end(self) -> None:
        for layer in self._changed:
            layer.__dict__.pop("forward", None)
        self._changed = []


class FakeQuantizedForward:
    """The forward of a layer, dense or conv, on D(Q(W)) and D(Q(x))."""

    def __init__(self, layer: TorchModule, bits: int) -> None:
        self.layer, self.bits = layer, bits
        self._weight: TorchTensor = None  # as it was when it was last quantized
        self._rounded: TorchTensor = None

    def __call__(self, x: TorchTensor) -> TorchTensor:
        layer, bits = self.layer, self.bits
        if isinstance(layer, torch.nn.Linear):
            return functional.linear(dequantized(x, bits, (-1,)), self._kernel(None), layer.bias)
        kernel = self._kernel((1, 2, 3))
        return layer._conv_forward(dequantized(x, bits, (1, 2, 3)), kernel, layer.bias)

    def _kernel(self, axes: tuple[int, ...] | None) -> TorchTensor:
        """D(Q(W)), made again only where W has changed.

        Values are compared: updates of target networks do not count in a tensor's version.
        """
        weight = self.layer.weight
        now = weight.detach()
        if self._weight is None or not torch.equal(self._weight, now):
            self._weight, self._rounded = now.clone(), rounded(now, self.bits, axes)
        return _straight_through(self._rounded, weight)


@contextmanager
def in_float(policy: TorchModule) -> Iterator[None]:
    """Let layers compute in float within a block."""
    changed = [
        m for m in layers(policy) if isinstance(vars(m).get("forward"), FakeQuantizedForward)
    ]
    kept = [vars(layer).pop("forward") for layer in changed]
    try:
        yield
    finally:
        for layer, forward in zip(changed, kept, strict=True):
            layer.forward = forward


def dequantized(x: TorchTensor, bits: int, axes: tuple[int, ...] | None = None) -> TorchTensor:
    """`qgraph.rl.policy.affine.dequantized` on a tensor; its gradient is that of x."""
    return x if bits >= FLOAT else _straight_through(rounded(x.detach(), bits, axes), x)


def _straight_through(found: TorchTensor, x: TorchTensor) -> TorchTensor:
    """`found` with the gradient of x."""
    return found + (x - x.detach()) if x.requires_grad and torch.is_grad_enabled() else found


def rounded(x: TorchTensor, bits: int, axes: tuple[int, ...] | None) -> TorchTensor:
    """D(Q(x)) of a tensor without gradients; by numpy on a CPU, which is faster for small ones."""
    if bits >= FLOAT:
        return x
    if x.device.type == "cpu" and x.dtype == torch.float32:
        return torch.from_numpy(affine.dequantized(x.numpy(), bits, axes))
    return rounded_on_device(x, bits, axes)


def rounded_on_device(x: TorchTensor, bits: int, axes: tuple[int, ...] | None) -> TorchTensor:
    """D(Q(x)) by operations of PyTorch, on any device."""
    if bits == HALF:
        largest = torch.finfo(torch.float16).max
        return x.clamp(-largest, largest).half().to(x.dtype)
    axes = axes or tuple(range(x.ndim))
    low = x.amin(axes, keepdim=True).clamp(max=0)
    high = x.amax(axes, keepdim=True).clamp(min=0)
    delta = (high - low) / 2**bits
    delta = torch.where(delta > 0, delta, 1)
    least, most = (low / delta).round(), (high / delta).round()
    extra = (most - least >= 2**bits).to(x.dtype)
    below = (-least > most).to(x.dtype)
    codes = (x / delta).round()
    codes = torch.maximum(codes, least + extra * below)
    return torch.minimum(codes, most - extra * (1 - below)) * delta
