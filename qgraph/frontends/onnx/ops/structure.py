"""Constants, identities, casts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import LoadError, UnsupportedError
from qgraph.frontends.onnx.builder import LARGEST_TOTAL, Importer, Result, Site
from qgraph.frontends.onnx.node import INITIALIZER
from qgraph.frontends.onnx.tensors import dtype_name

NUMBERS = {
    "value_float": "float32", "value_floats": "float32", "value_int": "int64",
    "value_ints": "int64",
}  # fmt: skip


def _constant(site: Site) -> Result:
    attrs = site.node.attrs
    if "value" in attrs:
        return site.const(site.builder.decoded(attrs["value"], site.name))
    for key, dtype in NUMBERS.items():
        if key in attrs:
            return site.const(np.asarray(attrs[key], dtype))
    for key in ("value_string", "value_strings"):
        if key in attrs:
            return site.const(np.asarray(attrs[key], object))
    raise UnsupportedError("a constant without a dense value", node=site.name)


def _constant_of_shape(site: Site) -> Result:
    """All elements are one: a view of it takes no memory."""
    shape, fill = site.integers(0), site.node.attrs.get("value")
    if shape is None:
        return None
    value = np.zeros(1, np.float32) if fill is None else site.builder.decoded(fill, site.name)
    if value.size != 1 or any(d < 0 for d in shape):
        raise LoadError(f"a constant of shape {shape}, filled with {value.size}", node=site.name)
    if math.prod(shape) > LARGEST_TOTAL:
        raise LoadError(f"a constant of {math.prod(shape):,} elements", node=site.name)
    return site.const(np.broadcast_to(value.reshape(()), shape))


def _identity(site: Site) -> Result:
    return site.emit("identity", site.inputs[0])


def _dropout(site: Site) -> Result:
    """Inference: the input. The mask, where anything asks for it, is left to ONNX."""
    training = site.constant(2)
    if site.has(2) and (training is None or bool(training.any())):
        raise UnsupportedError(
            "dropout that is at work", node=site.name, hint="export the model for inference"
        )
    site.without_effect(1)  # the ratio
    return site.emit("identity", site.inputs[0])


def _cast(site: Site) -> Result:
    site.node.flag("saturate", True)
    target = dtype_name(site.node.integer("to"), site.name)
    source = site.type().dtype
    if "string" in (target, source):
        return None
    if target == source:
        return site.emit("identity", site.inputs[0])
    return site.emit("cast", site.inputs[0], dtype=target)


def _cast_like(site: Site) -> Result:
    site.node.flag("saturate", True)
    target, source = site.type(1).dtype, site.type(0).dtype
    if "string" in (target, source):
        return None
    op, attrs = ("identity", {}) if target == source else ("cast", {"dtype": target})
    return site.emit(op, site.inputs[0], **attrs)


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        INITIALIZER: _constant,
        "Constant": _constant,
        "ConstantOfShape": _constant_of_shape,
        "Identity": _identity,
        "Dropout": _dropout,
        "Cast": _cast,
        "CastLike": _cast_like,
    }
)
