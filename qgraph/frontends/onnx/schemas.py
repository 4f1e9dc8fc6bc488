"""Attributes in ONNX's schemas: their defaults, and which never change a number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from qgraph.foreign import AttrValue

# By op: attributes that matter in training only, or to outputs or types that are refused.
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "BatchNormalization": ("momentum",),
        "Dropout": ("ratio", "seed"),
        "MaxPool": ("storage_order",),  # of the indices
        "Cast": ("round_mode",),  # to 8-bit floats
        "CastLike": ("round_mode",),
    }
)


def no_effect(op: str, version: int, domain: str, key: str, value: AttrValue) -> bool:
    """Whether attribute `key` of an op holds its default, or can never change a number."""
    if key in WITHOUT_EFFECT.get(op, ()):
        return True
    defaults = attribute_defaults(op, version, domain)
    return key in defaults and bool(defaults[key] == value)


@cache
def attribute_defaults(op: str, version: int, domain: str) -> Mapping[str, AttrValue]:
    """The defaults of an op's attributes, those that have one, in that opset."""
    from onnx import defs, helper

    domain = "" if domain == "ai.onnx" else domain
    if not defs.has(op, domain):
        return {}
    try:
        schema = defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return {}
    found = {key: a.default_value for key, a in schema.attributes.items() if a.default_value.type}
    values = {key: helper.get_attribute_value(proto) for key, proto in found.items()}
    return {key: v.decode() if isinstance(v, bytes) else v for key, v in values.items()}
