"""Import NCHW ops in NHWC between two transposes, which a later pass cancels."""

from __future__ import annotations

from qgraph.frontends.tf.builder import TfSite
from qgraph.frontends.tf.node import TFNode
from qgraph.ir.ops.windows import Padding, PaddingRule
from qgraph.ops.attribute_types import Pair
from qgraph.ops.movement import TO_NCHW, TO_NHWC


def channels_first(node: TFNode) -> bool:
    return node.text("data_format", "NHWC") == "NCHW"


def in_nhwc(site: TfSite, op: str, x: str, *others: str, **attrs: object) -> str:
    """The node as `op`, between two transposes if it is in NCHW."""
    if not channels_first(site.node):
        return site.emit(op, x, *others, **attrs)
    turned = site.helper("to_nhwc", "transpose", x, perm=TO_NHWC)
    result = site.helper("nhwc", op, turned, *others, **attrs)
    return site.emit("transpose", result, perm=TO_NCHW)


def spatial(values: tuple[int, ...], node: TFNode) -> Pair | None:
    """Height and width of a per-dimension attribute; None if batch or channels are involved."""
    if len(values) != 4 or node.text("data_format", "NHWC") not in ("NHWC", "NCHW"):
        return None
    n, c, h, w = values if channels_first(node) else (values[0], values[3], values[1], values[2])
    return (h, w) if (n, c) == (1, 1) else None


def window(node: TFNode) -> dict[str, object] | None:
    """Strides, dilations and padding of a convolution; None if they are not supported."""
    strides = spatial(node.integers("strides"), node)
    dilations = spatial(node.integers("dilations", (1, 1, 1, 1)), node)
    pads = padding(node)
    if strides is None or dilations is None or pads is None:
        return None
    return {"strides": strides, "dilations": dilations, "padding": pads}


def padding(node: TFNode) -> Padding | None:
    """`same`, `valid` or ((top, bottom), (left, right)); None for another explicit padding."""
    name = node.text("padding").lower()
    if name != "explicit":
        return PaddingRule(name) if name in [*PaddingRule] else None
    p = node.integers("explicit_paddings")
    if len(p) != 8:
        return None
    first, height, width, last = (p[0:2], p[2:4], p[4:6], p[6:8])
    if channels_first(node):
        height, width, last = width, last, height
    if any(first) or any(last):
        return None
    return ((height[0], height[1]), (width[0], width[1]))
