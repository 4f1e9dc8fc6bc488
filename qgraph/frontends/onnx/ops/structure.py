"""Constants, identities, casts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.frontends.grids import DOMAIN, QUANTIZED, spec_of_attributes
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.node import INITIALIZER
from qgraph.frontends.onnx.tensors import dtype_name

NUMBERS = {
    "value_float": "float32", "value_floats": "float32", "value_int": "int64",
    "value_ints": "int64",
}  # fmt: skip


def _constant(site: OnnxSite) -> Result:
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


def _identity(site: OnnxSite) -> Result:
    return site.emit("identity", site.inputs[0])


def _dropout(site: OnnxSite) -> Result:
    """The input, as in inference. If the mask is used, ONNX computes it."""
    training = site.constant(2)
    if site.has(2) and (training is None or bool(training.any())):
        raise UnsupportedError(
            "dropout in training mode", node=site.name, hint="export the model for inference"
        )
    site.without_effect(1)  # the ratio
    return site.emit("identity", site.inputs[0])


def _cast(site: OnnxSite) -> Result:
    site.node.flag("saturate", True)
    target = dtype_name(site.node.integer("to"), site.name)
    source = site.type().dtype
    if "string" in (target, source):
        return None
    if target == source:
        return site.emit("identity", site.inputs[0])
    return site.emit("cast", site.inputs[0], dtype=target)


def _cast_like(site: OnnxSite) -> Result:
    site.node.flag("saturate", True)
    target, source = site.type(1).dtype, site.type(0).dtype
    if "string" in (target, source):
        return None
    op, attrs = ("identity", {}) if target == source else ("cast", {"dtype": target})
    return site.emit(op, site.inputs[0], **attrs)


def _quantized(site: OnnxSite) -> Result:
    """A quantizer whose scale is kept."""
    return site.emit("quantize", site.inputs[0], spec=spec_of_attributes(site.node.attrs))


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        INITIALIZER: _constant,
        "Constant": _constant,
        "Identity": _identity,
        "Dropout": _dropout,
        "Cast": _cast,
        "CastLike": _cast_like,
        f"{DOMAIN}.{QUANTIZED}": _quantized,
    }
)
