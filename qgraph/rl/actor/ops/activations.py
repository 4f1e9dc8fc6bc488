"""Activations of layers and of `activate` steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qgraph.enums import StrEnum
from qgraph.errors import GraphError
from qgraph.ir.types import Array
from qgraph.ops.attributes import Attributes, attribute
from qgraph.rl.actor.ops.arithmetic import F, erf, exp, sigmoid, softplus, tanh


class Activation(StrEnum):
    """Activations in the order of their numbers in blocks, which never change."""

    LINEAR = "linear"
    RELU = "relu"
    LEAKY_RELU = "leaky_relu"
    ELU = "elu"
    TANH = "tanh"
    SIGMOID = "sigmoid"
    SOFTPLUS = "softplus"
    SWISH = "swish"
    EXP = "exp"
    SIGN = "sign"
    ERF = "erf"


ACTIVATIONS = tuple(Activation)
# Activations with a slope, and its default.
ALPHA: Mapping[str, float] = MappingProxyType({Activation.LEAKY_RELU: 0.2, Activation.ELU: 1.0})


@dataclass(frozen=True)
class ActivationAttrs(Attributes):
    """An activation. `alpha` is None for those without a slope. Raises GraphError if not finite."""

    activation: Activation = attribute(
        "function of each number", choices=ACTIVATIONS, default=Activation.LINEAR
    )
    alpha: float | None = attribute(
        "slope of leaky_relu below 0, factor of elu; unused by others", default=None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        activation = Activation(self.activation)
        default = ALPHA.get(activation)
        given = default if self.alpha is None else float(self.alpha)
        if given is not None and not math.isfinite(given):
            raise GraphError(f"attribute `alpha` is {given}", hint="legal: finite numbers")
        object.__setattr__(self, "activation", activation)
        object.__setattr__(self, "alpha", None if default is None else given)

    @property
    def slope(self) -> float:
        """`alpha`, or 0 for activations without one."""
        return 0.0 if self.alpha is None else self.alpha

    def applied(self, x: Array) -> Array:
        return FUNCTIONS[self.activation](x, F(self.slope))


Function = Callable[[Array, np.float32], Array]
FUNCTIONS: Mapping[Activation, Function] = MappingProxyType(
    {
        Activation.LINEAR: lambda x, alpha: x,
        Activation.RELU: lambda x, alpha: np.where(x < 0, F(0), x),
        Activation.LEAKY_RELU: lambda x, alpha: np.where(x < 0, x * alpha, x),
        Activation.ELU: lambda x, alpha: np.where(x < 0, (exp(x) - F(1)) * alpha, x),
        Activation.TANH: lambda x, alpha: tanh(x),
        Activation.SIGMOID: lambda x, alpha: sigmoid(x),
        Activation.SOFTPLUS: lambda x, alpha: softplus(x),
        Activation.SWISH: lambda x, alpha: x * sigmoid(x),
        Activation.EXP: lambda x, alpha: exp(x),
        Activation.SIGN: lambda x, alpha: np.where(x > 0, F(1), np.where(x < 0, F(-1), x)),
        Activation.ERF: lambda x, alpha: erf(x),
    }
)
