"""Activations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.prelu import prelu

SIXTH = float(np.float32(1 / 6))
SELU = (1.6732632423543772, 1.0507009873554805)  # alpha, gamma
CLOSE = 1e-6  # attributes are float32


def _float(site: OnnxSite) -> str:
    if not site.type().is_float:
        raise Inexpressible
    return site.inputs[0]


def _leaky_relu(site: OnnxSite) -> Result:
    return site.emit("leaky_relu", _float(site), alpha=site.node.real("alpha", 0.01))


def _prelu(site: OnnxSite) -> Result:
    return prelu(site, _float(site))


def _bound(site: OnnxSite, key: str, i: int) -> float | str | None:
    """A bound of a Clip: a number, a value that is not constant, or none."""
    if key in site.node.attrs:
        return site.node.real(key, 0.0)
    if not site.has(i):
        return None
    known = site.constant(i)
    return site.inputs[i] if known is None else float(np.asarray(known).reshape(()))


def _clip(site: OnnxSite) -> Result:
    x, dtype = site.inputs[0], site.type().dtype
    if dtype in ("string", "bool"):
        return None
    low, high = _bound(site, "min", 1), _bound(site, "max", 2)
    low = None if isinstance(low, float) and low <= _lowest(dtype) else low
    high = None if isinstance(high, float) and high >= -_lowest(dtype) else high
    if (low, high) == (0.0, 6.0):
        return site.emit("relu6", x)
    steps = [
        ("relu", None) if low == 0.0 else ("maximum", low),
        ("minimum", high),
    ]
    kept = [s for s, bound in zip(steps, (low, high), strict=True) if bound is not None]
    if not kept:
        return site.emit("identity", x)
    if len(kept) == 2:
        x = site.helper("above", kept[0][0], x, *_others(site, kept[0][1], "min"))
    op, bound = kept[-1]
    return site.emit(op, x, *_others(site, bound, "max" if op == "minimum" else "min"))


def _others(site: OnnxSite, bound: float | str | None, what: str) -> tuple[str, ...]:
    if bound is None:
        return ()
    return (bound if isinstance(bound, str) else site.scalar(bound, what),)


def _lowest(dtype: str) -> float:
    kind = np.dtype(dtype)
    return float(np.finfo(kind).min) if kind.kind == "f" else float(np.iinfo(kind).min)


def _hard_sigmoid(site: OnnxSite) -> Result:
    alpha, beta = site.node.real("alpha", 0.2), site.node.real("beta", 0.5)
    if abs(alpha - SIXTH) < CLOSE and beta == 0.5:
        return site.emit("hard_sigmoid", _float(site))
    return site.emit("hard_sigmoid", _float(site), alpha=alpha, beta=beta)


def _elu(site: OnnxSite) -> Result:
    alpha = site.node.real("alpha", 1.0)
    attrs = {} if alpha == 1 else {"alpha": alpha}
    return site.emit("elu", _float(site), **attrs)


def _selu(site: OnnxSite) -> Result:
    alpha, gamma = site.node.real("alpha", SELU[0]), site.node.real("gamma", SELU[1])
    x = _float(site)
    if abs(alpha - SELU[0]) < CLOSE and abs(gamma - SELU[1]) < CLOSE:
        return site.emit("selu", x)
    inner = site.helper("elu", "elu", x, alpha=alpha)
    return site.emit("mul", inner, site.scalar(gamma, "gamma"))


def _celu(site: OnnxSite) -> Result:
    """alpha * elu(x / alpha)"""
    x, alpha = _float(site), site.node.real("alpha", 1.0)
    if alpha == 1:
        return site.emit("elu", x)
    shrunk = site.helper("shrunk", "mul", x, site.scalar(1 / alpha, "inverse"))
    inner = site.helper("elu", "elu", shrunk)
    return site.emit("mul", inner, site.scalar(alpha, "alpha"))


def _gelu(site: OnnxSite) -> Result:
    mode = site.node.text("approximate", "none")
    if mode not in ("none", "tanh"):
        raise GraphError(f"unknown GELU `{mode}`", node=site.name)
    return site.emit("gelu", _float(site), approximate=mode == "tanh")


def _mish(site: OnnxSite) -> Result:
    x = _float(site)
    inner = site.helper("tanh", "tanh", site.helper("softplus", "softplus", x))
    return site.emit("mul", x, inner)


def _swish(site: OnnxSite) -> Result:
    x, alpha = _float(site), site.node.real("alpha", 1.0)
    if alpha == 1:
        return site.emit("swish", x)
    steeper = site.helper("steeper", "mul", x, site.scalar(alpha, "alpha"))
    return site.emit("mul", x, site.helper("sigmoid", "sigmoid", steeper))


def _thresholded(site: OnnxSite) -> Result:
    """x above alpha, else 0"""
    x = _float(site)
    limit = site.scalar(site.node.real("alpha", 1.0), "limit")
    above = site.helper("above", "greater", x, limit)
    return site.emit("select", above, x, site.scalar(0.0, "zero"))


def _shrink(site: OnnxSite) -> Result:
    """x + bias below -lambd, x - bias above lambd, else 0"""
    x, bias = _float(site), site.scalar(site.node.real("bias", 0.0), "bias")
    limit = site.node.real("lambd", 0.5)
    above = site.helper("above", "greater", x, site.scalar(limit, "limit"))
    below = site.helper("below", "greater", site.scalar(-limit, "minus_limit"), x)
    less = site.helper("less", "sub", x, bias)
    zero_or_less = site.helper("zero_or_less", "select", above, less, site.scalar(0.0, "zero"))
    return site.emit("select", below, site.helper("more", "add", x, bias), zero_or_less)


def _softmax(op: str) -> Importer:
    def importer(site: OnnxSite) -> Result:
        x, rank = _float(site), site.rank()
        if site.node.version >= 13:
            return _along(site, op, x, site.axis(site.node.integer("axis", -1), rank))
        axis = site.node.integer("axis", 1)
        axis = site.axis(axis, rank) if rank > 1 else 0
        if axis == rank - 1:
            return site.emit(op, x, axis=-1)
        return _of_rows(site, op, x, axis)

    return importer


def _along(site: OnnxSite, op: str, x: str, axis: int) -> Result:
    rank = site.rank()
    if axis == rank - 1:
        return site.emit(op, x, axis=-1)
    perm = (*range(axis), *range(axis + 1, rank), axis)
    turned = site.helper("turned", "transpose", x, perm=perm)
    made = site.helper("last", op, turned, axis=-1)
    return site.emit("transpose", made, perm=tuple(int(p) for p in np.argsort(perm)))


def _of_rows(site: OnnxSite, op: str, x: str, axis: int) -> Result:
    """The form before opset 13: over all axes from `axis` on together."""
    shape = site.known_shape()
    if all(d == 1 for d in shape[axis + 1 :]):
        return _along(site, op, x, axis)
    if None in shape[axis:] or shape[:axis].count(None) > 1:
        return None
    rows = site.helper("rows", "reshape", x, shape=(-1, math.prod(d or 0 for d in shape[axis:])))
    made = site.helper("flat", op, rows, axis=-1)
    return site.emit("reshape", made, shape=tuple(-1 if d is None else d for d in shape))


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "LeakyRelu": _leaky_relu,
        "PRelu": _prelu,
        "Clip": _clip,
        "HardSigmoid": _hard_sigmoid,
        "Elu": _elu,
        "Selu": _selu,
        "Celu": _celu,
        "Gelu": _gelu,
        "Mish": _mish,
        "Swish": _swish,
        "ThresholdedRelu": _thresholded,
        "Shrink": _shrink,
        "Softmax": _softmax("softmax"),
        "LogSoftmax": _softmax("log_softmax"),
    }
)
