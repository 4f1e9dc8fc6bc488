"""Images: NCHW in the model, NHWC in the IR; a signal is an image of height 1."""

from __future__ import annotations

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import OnnxSite
from qgraph.frontends.volumes import with_ceiling as with_ceiling_of_axis
from qgraph.ir.ops.windows import Padding, PaddingRule
from qgraph.ops.attribute_types import Pair
from qgraph.ops.movement import TO_NCHW, TO_NHWC

LAST = (0, 2, 1)  # and back
NONE: tuple[Pair, Pair] = ((0, 0), (0, 0))


def image(site: OnnxSite, i: int = 0) -> str:
    """Input `i` as [n, h, w, c]; one of [n, c, length] has height 1."""
    value, rank = site.inputs[i], site.rank(i)
    images = site.builder.images
    if value not in images:
        if rank == 4:
            images[value] = site.helper("to_nhwc", "transpose", value, perm=TO_NHWC)
        elif rank == 3:
            turned = site.helper("to_nlc", "transpose", value, perm=LAST)
            images[value] = site.helper("to_nhwc", "expand_dims", turned, axis=1)
        else:
            raise Inexpressible
    return images[value]


def back(site: OnnxSite, made: str, rank: int) -> str:
    """The node's output, of `rank`, from its image `made`."""
    images = site.builder.images
    if rank == 3:
        flat = site.helper("nlc", "squeeze", made, axes=(1,))
        value = site.emit("transpose", flat, perm=LAST)
    else:
        value = site.emit("transpose", made, perm=TO_NCHW)
    images[value] = made
    return value


def in_nhwc(site: OnnxSite, op: str, *others: str, **attrs: object) -> str:
    """The node as `op` on its first input's image."""
    return back(site, site.helper("nhwc", op, image(site), *others, **attrs), site.rank())


def pair(site: OnnxSite, key: str, default: int = 1) -> Pair:
    """A per-axis attribute as height and width."""
    values = site.node.integers(key)
    return _pair(site, values) if values else (default, default)


def _pair(site: OnnxSite, values: tuple[int, ...]) -> Pair:
    spatial = site.rank() - 2
    if len(values) != spatial or min(values) < 1:
        raise GraphError(f"{values} do not fit {spatial} axes", node=site.name)
    return (values[0], values[1]) if spatial == 2 else (1, values[0])


def explicit(site: OnnxSite) -> tuple[Pair, Pair]:
    """Attribute `pads`: ((top, bottom), (left, right))."""
    pads = site.node.integers("pads")
    if not pads:
        return NONE
    spatial = site.rank() - 2
    if len(pads) != 2 * spatial or min(pads) < 0:
        raise GraphError(f"pads {pads} do not fit {spatial} axes", node=site.name)
    if spatial == 1:
        return ((0, 0), (pads[0], pads[1]))
    return ((pads[0], pads[2]), (pads[1], pads[3]))


def check_kernel(site: OnnxSite, weights: tuple[int, ...]) -> None:
    """Raise GraphError where attribute `kernel_shape` is not that of weights [o, i, ...]."""
    given = site.node.integers("kernel_shape")
    if given and given != weights[2:]:
        raise GraphError(
            f"kernel_shape {given} does not fit weights of shape {weights}", node=site.name
        )


def refuse_pads(site: OnnxSite) -> None:
    """Refuse pads together with `auto_pad`, which runtimes interpret differently."""
    if any(site.node.integers("pads") or ()):
        raise Inexpressible


def window(
    site: OnnxSite, kernel: Pair, strides: Pair, dilations: Pair, *, numbers: bool = False
) -> Padding:
    """The padding in the form of the IR: `same` (unless `numbers`), `valid` or numbers."""
    mode = site.node.text("auto_pad", "NOTSET")
    if mode == "NOTSET":
        pads = explicit(site)
        return PaddingRule.VALID if pads == NONE else pads
    refuse_pads(site)
    if mode == "VALID":
        return PaddingRule.VALID
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise GraphError(f"unknown auto_pad `{mode}`", node=site.name)
    if mode == "SAME_UPPER" and site.rank() == 4 and not numbers:
        return PaddingRule.SAME
    height, width = (
        _same(size, kernel[i], strides[i], dilations[i], mode)
        for i, size in enumerate(_image_sizes(site))
    )
    return height, width


def _image_sizes(site: OnnxSite) -> tuple[int | None, ...]:
    """Height and width of the first input as an image."""
    shape = site.builder.graph.types[image(site)].shape
    return (None, None) if shape is None else shape[1:3]


def _same(size: int | None, kernel: int, stride: int, dilation: int, mode: str) -> Pair:
    """Padding for `same`; SAME_LOWER has the odd element in front."""
    span = (kernel - 1) * dilation + 1
    if stride == 1:
        total = span - 1
    elif size is None:
        raise Inexpressible
    else:
        total = max((-(-size // stride) - 1) * stride + span - size, 0)
    less, more = total // 2, total - total // 2
    return (more, less) if mode == "SAME_LOWER" else (less, more)


def with_ceiling(site: OnnxSite, padding: Padding, kernel: Pair, strides: Pair) -> Padding:
    """`padding`, with more at the end if the last, incomplete window counts (`ceil_mode`)."""
    if not site.node.flag("ceil_mode") or padding is PaddingRule.SAME:
        return padding
    pads = NONE if padding is PaddingRule.VALID else padding
    height, width = (
        _ceiling(size, kernel[i], strides[i], pads[i]) for i, size in enumerate(_image_sizes(site))
    )
    return PaddingRule.VALID if (height, width) == NONE else (height, width)


def _ceiling(size: int | None, kernel: int, stride: int, pads: Pair) -> Pair:
    if stride == 1:
        return pads
    if size is None:
        raise Inexpressible
    return with_ceiling_of_axis(size, kernel, stride, pads)


def reordered(
    site: OnnxSite, value: str, shape: tuple[int, ...], perm: tuple[int, ...], what: str
) -> str:
    """`value` reshaped, then transposed; a constant in, a constant out."""
    array = site.builder.constant(value)
    if array is not None:
        return site.derived(
            ("reordered", value, shape, perm),
            lambda: np.transpose(array.reshape(shape), perm),
            what,
        )
    return site.helper(what, "transpose", shaped(site, value, shape, f"{what}/shape"), perm=perm)


def shaped(site: OnnxSite, value: str, shape: tuple[int, ...], what: str) -> str:
    if site.builder.graph.types[value].shape == shape:
        return value
    return site.helper(what, "reshape", value, shape=shape)


def sizes_of(site: OnnxSite, i: int) -> tuple[int, ...]:
    """The shape of input `i`, all of it known."""
    shape = site.known_shape(i)
    if any(d is None for d in shape):
        raise Inexpressible
    return tuple(d or 0 for d in shape)
