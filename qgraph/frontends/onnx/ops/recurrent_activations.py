"""Activations of recurrent layers, by their names in attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends.onnx.builder import OnnxSite

# A function of a value, which names its nodes after the text.
Function = Callable[[str, str], str]
# Defaults of alpha and beta; those of functions without them are empty.
DEFAULTS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "Relu": (),
        "Tanh": (),
        "Sigmoid": (),
        "Softsign": (),
        "Softplus": (),
        "LeakyRelu": (0.01,),
        "Elu": (1.0,),
        "Affine": (1.0, 0.0),
        "ScaledTanh": (1.0, 1.0),
        "HardSigmoid": (0.2, 0.5),
    }
)
NAMES: Mapping[str, str] = MappingProxyType({name.lower(): name for name in DEFAULTS})


def functions_of(
    site: OnnxSite, usual: Sequence[str], directions: Sequence[object]
) -> tuple[tuple[Function, ...], ...]:
    """The functions of each direction. Raises UnsupportedError for one that is unknown."""
    expected = [*usual] * len(directions)
    names = [str(n) for n in site.node.attrs.get("activations", ())] or expected
    if len(names) != len(expected):
        raise GraphError(f"{len(names)} activations, expected {len(expected)}", node=site.name)
    alphas, betas = (
        iter([float(np.float32(v)) for v in site.node.attrs.get(key, ())])
        for key in ("activation_alpha", "activation_beta")
    )
    made = [_function(site, name, alphas, betas) for name in names]
    size = len(usual)
    return tuple(tuple(made[i : i + size]) for i in range(0, len(made), size))


def _function(
    site: OnnxSite, name: str, alphas: Iterator[float], betas: Iterator[float]
) -> Function:
    key = NAMES.get(name.lower())
    if key is None:
        raise UnsupportedError(
            f"the activation `{name}` of this `{site.node.op}` is not supported",
            node=site.name,
            hint=f"supported: {', '.join(DEFAULTS)}",
        )
    numbers = [
        next(given, default) for given, default in zip((alphas, betas), DEFAULTS[key], strict=False)
    ]
    return _maker(site, key, numbers)


def _maker(site: OnnxSite, key: str, numbers: Sequence[float]) -> Function:
    def simple(op: str, **attrs: object) -> Function:
        return lambda x, what: site.helper(what, op, x, **attrs)

    def scaled(x: str, what: str, factor: float) -> str:
        constant = site.scalar(factor, f"{what}_factor")
        return site.helper(f"{what}_scaled", "mul", x, constant)

    def affine(x: str, what: str) -> str:
        alpha, beta = numbers
        return site.helper(what, "add", scaled(x, what, alpha), site.scalar(beta, f"{what}_beta"))

    def scaled_tanh(x: str, what: str) -> str:
        alpha, beta = numbers
        inner = site.helper(f"{what}_tanh", "tanh", scaled(x, what, beta))
        return site.helper(what, "mul", inner, site.scalar(alpha, f"{what}_alpha"))

    match key:
        case "LeakyRelu" | "Elu":
            return simple("leaky_relu" if key == "LeakyRelu" else "elu", alpha=numbers[0])
        case "HardSigmoid":
            return simple("hard_sigmoid", alpha=numbers[0], beta=numbers[1])
        case "Affine":
            return affine
        case "ScaledTanh":
            return scaled_tanh
        case _:
            return simple(key.lower())
