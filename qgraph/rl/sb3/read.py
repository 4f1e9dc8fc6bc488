"""A stable-baselines3 policy as an actor program, whose weights are read whenever one likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.distributions import (
    CategoricalDistribution,
    DiagGaussianDistribution,
)
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import FlattenExtractor, NatureCNN
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import nn

from qgraph.errors import UnsupportedError
from qgraph.ir.types import Array
from qgraph.rl.actor.form import ActorProgram, Step
from qgraph.rl.head import Head

ACTIVATIONS: Mapping[Any, str] = {
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.ELU: "elu",
    nn.LeakyReLU: "leaky_relu",
    nn.SiLU: "swish",
    nn.Softplus: "softplus",
}
NOTHING = (nn.Identity, nn.Dropout)  # as they are when a policy acts
ALGORITHMS = "A2C, PPO, DQN, DDPG, TD3 and SAC"

Read = Callable[[], Array]


@dataclass(frozen=True)
class Sb3Policy:
    """What the actor of a model computes. `images`: observations are [c, h, w] in the model."""

    program: ActorProgram
    parameters: Mapping[str, Read]
    make_head: Callable[[], Head]
    images: bool

    @property
    def weights(self) -> dict[str, Array]:
        """As they are now, float32."""
        return {
            name: np.ascontiguousarray(read(), np.float32) for name, read in self.parameters.items()
        }

    @property
    def head(self) -> Head:
        """Of the model as it is now: deviations are learnt."""
        return self.make_head()

    def as_seen(self, observations: Array) -> Array:
        """Observations as the model has them, [n, ...], in the order of the program."""
        found = np.asarray(observations, np.float32)
        return np.ascontiguousarray(np.moveaxis(found, 1, -1)) if self.images else found


def read(model: Any) -> Sb3Policy:
    """The actor of a model (A2C, PPO, DQN, DDPG, TD3, SAC).

    Raises UnsupportedError for what no actor has, naming the module.
    """
    policy, space = model.policy, model.observation_space
    if not isinstance(space, spaces.Box):
        raise UnsupportedError(f"observations are {space}; only arrays are handled")
    images = bool(is_image_space(space) and policy.normalize_images)
    reader = _Reader(space.shape, images)
    if getattr(model, "use_sde", False):
        raise UnsupportedError("state-dependent exploration (use_sde) has no actor program")
    if isinstance(policy, ActorCriticPolicy):
        _actor_critic(reader, policy)
    elif isinstance(policy, DQNPolicy):
        reader.features(policy.q_net.features_extractor)
        reader.modules(policy.q_net.q_net, "q_net")
    elif isinstance(policy, TD3Policy):
        reader.features(policy.actor.features_extractor)
        reader.modules(policy.actor.mu, "actor")
    elif isinstance(policy, SACPolicy):
        _sac(reader, policy.actor)
    else:
        raise UnsupportedError(
            f"policy `{type(policy).__name__}` is not known", hint=f"known: those of {ALGORITHMS}"
        )
    head = _head_of(policy)
    head()  # which refuses action spaces that no head fits
    return Sb3Policy(reader.program(), reader.parameters, head, reader.images)


def _actor_critic(reader: _Reader, policy: Any) -> None:
    shared = policy.share_features_extractor
    reader.features(policy.features_extractor if shared else policy.pi_features_extractor)
    reader.modules(policy.mlp_extractor.policy_net, "policy_net")
    reader.module(policy.action_net, "action_net")


def _sac(reader: _Reader, actor: Any) -> None:
    reader.features(actor.features_extractor)
    reader.modules(actor.latent_pi, "latent_pi")
    latent = reader.value
    parts = []
    for name in ("mu", "log_std"):
        reader.value = latent
        reader.module(getattr(actor, name), name)
        parts.append(reader.value)
    reader.add("concat", "output", *parts)


def _head_of(policy: Any) -> Callable[[], Head]:
    space = policy.action_space
    if isinstance(space, spaces.Discrete) and int(space.start) == 0:
        kind = "argmax" if isinstance(policy, DQNPolicy) else "categorical"
        fits = kind == "argmax" or isinstance(policy.action_dist, CategoricalDistribution)
        ends: tuple[Any, Any] = ((), ())
    else:
        fits = isinstance(space, spaces.Box) and len(space.shape) == 1
        kinds = {SACPolicy: "squashed_gaussian", TD3Policy: "scale"}
        kind = next((k for of, k in kinds.items() if isinstance(policy, of)), "gaussian")
        if isinstance(policy, ActorCriticPolicy):
            fits = fits and isinstance(policy.action_dist, DiagGaussianDistribution)
            fits = fits and not policy.squash_output
        ends = (getattr(space, "low", ()), getattr(space, "high", ()))
    if not fits:
        raise UnsupportedError(f"actions are {space}; no head fits them")
    low, high = (tuple(float(x) for x in end) for end in ends)

    def head() -> Head:
        spread = _numbers(policy.log_std) if kind == "gaussian" else ()
        return Head(kind, low, high, tuple(float(x) for x in spread))

    return head


def _numbers(parameter: Any) -> Array:
    return np.asarray(parameter.detach().cpu().numpy())


class _Reader:
    """Goes through modules in the order in which they run; `value` is what the last one made."""

    def __init__(self, shape: tuple[int, ...], images: bool) -> None:
        self.images = images
        self.shape = (*shape[1:], shape[0]) if images else shape
        self.steps: list[Step] = []
        self.parameters: dict[str, Read] = {}
        self.value = "observation"
        self.flattened: tuple[int, ...] | None = None  # what an image was before

    def program(self) -> ActorProgram:
        shapes = {name: read().shape for name, read in self.parameters.items()}
        return ActorProgram(self.shape, tuple(self.steps), (self.value,), shapes)

    def add(self, op: str, name: str, *inputs: str, attrs: Any = None, **weights: Read) -> None:
        names = {role: f"{name}/{role}" for role in weights}
        self.parameters.update({names[role]: read for role, read in weights.items()})
        made = inputs or (self.value,)
        self.steps.append(Step(op, made, name, tuple(names.values()), attrs or {}))
        self.value = name

    def features(self, extractor: Any) -> None:
        if self.images:
            channels = self.shape[-1]
            scale = np.full(channels, 1 / 255, np.float32)
            self.add("affine", "scaled", scale=lambda: scale, offset=lambda: np.zeros_like(scale))
        if isinstance(extractor, FlattenExtractor):
            self.module(extractor.flatten, "flatten")
        elif isinstance(extractor, NatureCNN) and self.images:
            self.modules(extractor.cnn, "cnn")
            self.modules(extractor.linear, "linear")
        else:
            raise UnsupportedError(
                f"no actor has `{type(extractor).__name__}`",
                node="features_extractor",
                hint="FlattenExtractor, or NatureCNN on images of 0..255",
            )

    def modules(self, sequence: Any, name: str) -> None:
        for index, module in enumerate(sequence):
            self.module(module, f"{name}.{index}")

    def module(self, module: Any, name: str) -> None:
        if isinstance(module, NOTHING):
            return
        if isinstance(module, nn.Sequential):
            self.modules(module, name)
        elif type(module) in ACTIVATIONS:
            self._activation(module, name)
        elif isinstance(module, nn.Linear):
            self._linear(module, name)
        elif isinstance(module, nn.Conv2d):
            self._conv(module, name)
        elif isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1:
            reads = {"gamma": _reads(module.weight), "beta": _reads(module.bias)}
            self.add("layer_norm", name, attrs={"epsilon": float(module.eps)}, **reads)
        elif isinstance(module, nn.Flatten):
            self._flatten(name)
        else:
            raise UnsupportedError(f"no actor has `{type(module).__name__}`", node=name)

    def _activation(self, module: Any, name: str) -> None:
        kind = ACTIVATIONS[type(module)]
        alpha = getattr(module, "alpha", getattr(module, "negative_slope", None))
        if kind == "softplus" and module.beta != 1:
            raise UnsupportedError("no actor has a softplus with another beta than 1", node=name)
        attrs: dict[str, Any] = {"activation": kind}
        if alpha is not None:
            attrs["alpha"] = float(alpha)
        last = self.steps[-1] if self.steps else None
        if last is not None and last.op in ("dense", "conv") and last.activation == "linear":
            self.steps[-1] = Step(
                last.op, last.inputs, last.output, last.weights, {**last.attrs, **attrs}
            )
        else:
            self.add("activate", name, attrs=attrs)

    def _linear(self, module: Any, name: str) -> None:
        image, self.flattened = self.flattened, None

        def kernel() -> Array:
            found = _numbers(module.weight).T
            if image is None:
                return found
            height, width, channels = image  # rows are in the order of [c, h, w]
            whole = found.reshape(channels, height, width, -1).transpose(1, 2, 0, 3)
            return whole.reshape(found.shape)

        self.add("dense", name, kernel=kernel, bias=_bias(module, module.out_features))

    def _conv(self, module: Any, name: str) -> None:
        plain = module.groups == 1 and module.dilation == (1, 1)
        if not plain or module.padding_mode != "zeros" or isinstance(module.padding, str):
            raise UnsupportedError("no actor has such a convolution", node=name)
        pads = tuple((int(p), int(p)) for p in module.padding)
        self.add(
            "conv", name, attrs={"strides": tuple(module.stride), "pads": pads},
            kernel=lambda: _numbers(module.weight).transpose(2, 3, 1, 0),
            bias=_bias(module, module.out_channels),
        )  # fmt: skip

    def _flatten(self, name: str) -> None:
        before = self.program().shapes()[self.value]
        if len(before) == 1:
            return
        if len(before) == 3 and self.images:
            self.flattened = before
        self.add("flatten", name)


def _reads(parameter: Any) -> Read:
    return lambda: _numbers(parameter)


def _bias(module: Any, size: int) -> Read:
    return (lambda: np.zeros(size, np.float32)) if module.bias is None else _reads(module.bias)


def layers(policy: Any) -> Iterator[Any]:
    """Its layers with kernels, of actors and critics."""
    return (m for m in policy.modules() if isinstance(m, nn.Linear | nn.Conv2d))
