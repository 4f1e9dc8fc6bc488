"""Norms: of batches, and over channels, groups of channels, positions or rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.local_response import LocalResponse
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.layout import back, image

EPSILON = 1e-5
SMALLEST = 1e-30  # the square of a length, or a length, that counts as 0


def _batch_norm(site: OnnxSite) -> Result:
    node = site.node
    if node.flag("training_mode") or any(node.outputs[1:]):
        raise UnsupportedError(
            "a batch norm in training mode", node=site.name, hint="export the model for inference"
        )
    x, *statistics = site.inputs
    if len(statistics) != 4 or {site.type(i).dtype for i in range(5)} != {site.type().dtype}:
        return None
    epsilon, rank = node.real("epsilon", EPSILON), site.rank()
    if rank == 2:
        return site.emit("batch_norm", x, *statistics, epsilon=epsilon)
    if rank in (3, 4):
        made = site.helper("nhwc", "batch_norm", image(site), *statistics, epsilon=epsilon)
        return back(site, made, rank)
    if rank < 2:
        return None
    turned = site.helper("turned", "transpose", x, perm=(0, *range(2, rank), 1))
    made = site.helper("last", "batch_norm", turned, *statistics, epsilon=epsilon)
    return site.emit("transpose", made, perm=(0, rank - 1, *range(1, rank - 1)))


@dataclass(frozen=True)
class _Normal:
    """(x - mean) / deviation over some axes, and the parts that it is made of."""

    value: str
    mean: str
    inverse: str  # 1 / deviation


def _normalized(
    site: OnnxSite, x: str, axes: tuple[int, ...], epsilon: float, *, centred: bool = True
) -> _Normal:
    """(x - mean) / sqrt(variance + epsilon) over `axes`; without the mean if not centred."""
    attrs, mean, centre = {"axes": axes, "keepdims": True}, "", x
    if centred:
        mean = site.helper("mean", "mean", x, **attrs)
        centre = site.helper("centred", "sub", x, mean)
    spread = site.helper("square", "square", centre)
    variance = site.helper("variance", "mean", spread, **attrs)
    safe = site.helper("safe", "add", variance, site.scalar(epsilon, "epsilon"))
    inverse = site.helper("rsqrt", "rsqrt", safe)
    return _Normal(site.helper("normal", "mul", centre, inverse), mean, inverse)


def _instance_norm(site: OnnxSite) -> Result:
    if not site.type().is_float or site.rank() not in (3, 4):
        return None
    normal = _normalized(site, image(site), (1, 2), site.node.real("epsilon", EPSILON)).value
    scaled = site.helper("scaled", "mul", normal, site.inputs[1])
    return back(site, site.helper("nhwc", "add", scaled, site.inputs[2]), site.rank())


def _layer_norm(site: OnnxSite) -> Result:
    """The norm over the last axes, and perhaps its mean and the inverse of its deviation."""
    if not site.type().is_float or site.node.integer("stash_type", 1) != 1:
        return None
    rank, x, scale = site.rank(), site.inputs[0], site.inputs[1]
    axis = site.axis(site.node.integer("axis", -1), rank)
    epsilon = site.node.real("epsilon", EPSILON)
    shape = site.shape(1)
    channels = site.known_shape()[-1]
    parts = any(site.node.outputs[1:])
    if axis == rank - 1 and channels is not None and shape == (channels,) and not parts:
        zeros = np.zeros(channels, site.type().dtype)
        beta = site.inputs[2] if site.has(2) else site.const(zeros, "beta")
        return site.emit("layer_norm", x, scale, beta, epsilon=epsilon)
    normal = _normalized(site, x, tuple(range(axis, rank)), epsilon)
    if site.has(2):
        scaled = site.helper("scaled", "mul", normal.value, scale)
        made = site.emit("add", scaled, site.inputs[2])
    else:
        made = site.emit("mul", normal.value, scale)
    return (made, normal.mean, normal.inverse) if parts else made


def _rms_norm(site: OnnxSite) -> Result:
    if not site.type().is_float or site.node.integer("stash_type", 1) != 1:
        return None
    rank = site.rank()
    axis = site.axis(site.node.integer("axis", -1), rank)
    epsilon = site.node.real("epsilon", EPSILON)
    normal = _normalized(site, site.inputs[0], tuple(range(axis, rank)), epsilon, centred=False)
    return site.emit("mul", normal.value, site.inputs[1])


def _lp_norm(site: OnnxSite) -> Result:
    """x divided by its length along an axis, or 0 where that is 0."""
    power = site.node.integer("p", 2)
    if not site.type().is_float or power not in (1, 2):
        return None
    x, attrs = site.inputs[0], {"keepdims": True}
    axis = site.axis(site.node.integer("axis", -1), site.rank())
    if power == 1:
        length = site.helper("length", "sum", site.helper("abs", "abs", x), axes=(axis,), **attrs)
        safe = site.helper("safe", "maximum", length, site.scalar(SMALLEST, "smallest"))
        return site.emit("div", x, safe)
    total = site.helper("total", "sum", site.helper("square", "square", x), axes=(axis,), **attrs)
    safe = site.helper("safe", "maximum", total, site.scalar(SMALLEST, "smallest"))
    return site.emit("mul", x, site.helper("rsqrt", "rsqrt", safe))


def _lrn(site: OnnxSite) -> Result:
    """x / (bias + alpha / size * sum of squares over `size` channels) ** beta"""
    node, rank = site.node, site.rank()
    size = node.integer("size")
    if not site.type().is_float or rank not in (3, 4) or size < 1:
        raise Inexpressible
    before = (size - 1) // 2
    made = LocalResponse(
        before=before, after=size - 1 - before, factor=node.real("alpha", 1e-4) / size,
        bias=node.real("bias", 1.0), power=node.real("beta", 0.75),
    ).of(site, image(site))  # fmt: skip
    return back(site, made, rank)


def _group_norm(site: OnnxSite) -> Result:
    """A group norm. There is one scale per channel; before opset 21, one per group."""
    groups, rank = site.node.integer("num_groups"), site.rank()
    shape = site.known_shape()
    if not site.type().is_float or rank < 3 or groups < 1:
        return None
    if None in shape[1:] or (shape[1] or 0) % groups:
        return None
    whole = [d or 0 for d in shape[1:]]
    rows = site.helper(
        "groups", "reshape", site.inputs[0], shape=(-1, groups, math.prod(whole) // groups)
    )
    normal = _normalized(site, rows, (2,), site.node.real("epsilon", EPSILON)).value
    target = (-1, *whole) if shape[0] is None else (shape[0], *whole)
    restored = site.helper("restored", "reshape", normal, shape=target)
    scale, bias = (_per_channel(site, i, whole[0], groups) for i in (1, 2))
    return site.emit("add", site.helper("scaled", "mul", restored, scale), bias)


def _per_channel(site: OnnxSite, i: int, channels: int, groups: int) -> str:
    """Input `i`, of one number per channel or group, as [channels, 1, ...]."""
    value, count = site.inputs[i], channels if site.node.version >= 21 else groups
    if site.shape(i) != (count,):
        raise GraphError(f"{site.type(i)} for {count} numbers", node=site.name)
    column = (channels, *(1,) * (site.rank() - 2))
    if count != channels:
        rows = site.helper(f"rows{i}", "reshape", value, shape=(count, 1))
        value = site.helper(f"channels{i}", "concat", *[rows] * (channels // count), axis=1)
    return site.helper(f"column{i}", "reshape", value, shape=column)


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "BatchNormalization": _batch_norm,
        "InstanceNormalization": _instance_norm,
        "LayerNormalization": _layer_norm,
        "GroupNormalization": _group_norm,
        "RMSNormalization": _rms_norm,
        "LpNormalization": _lp_norm,
        "LRN": _lrn,
    }
)
