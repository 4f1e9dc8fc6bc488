"""Nearest-neighbour resizing, and ops that trade space for depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.onnx.builder import Importer, Inexpressible, Result, Site
from qgraph.frontends.onnx.ops.layout import back, image, in_nhwc
from qgraph.ir.ops import op_definition

MOST_COPIES = 64
LARGEST_SIDE = 1 << 16
# Of the IR's op: plain, half-pixel centres, aligned corners.
FORMS = (
    {"align_corners": False, "half_pixel": False},
    {"align_corners": False, "half_pixel": True},
    {"align_corners": True, "half_pixel": False},
)


def _factors(site: Site, values: Any) -> tuple[float, ...]:
    """Of height and width, from those of all axes."""
    rank = site.rank()
    scales = [float(v) for v in np.ravel(values)]
    axes = site.node.integers("axes")
    if axes is not None:
        given = {site.axis(a, rank): s for a, s in zip(axes, scales, strict=True)}
        scales = [given.get(a, 1.0) for a in range(rank)]
    if len(scales) != rank or any(s != 1 for s in scales[:2]) or min(scales) <= 0:
        raise Inexpressible
    return (1.0, scales[2]) if rank == 3 else (scales[2], scales[3])


def _sizes(site: Site, values: Any) -> tuple[int, ...]:
    rank, shape = site.rank(), site.known_shape()
    sizes = [int(v) for v in np.ravel(values)]
    axes = site.node.integers("axes")
    if axes is not None:
        given = {site.axis(a, rank): s for a, s in zip(axes, sizes, strict=True)}
        if {0, 1} & set(given):
            raise Inexpressible
        sizes = [given.get(a, shape[a] or 0) for a in range(rank)]
    elif shape[1] != sizes[1] or (shape[0] is not None and shape[0] != sizes[0]):
        raise Inexpressible
    return (1, sizes[2]) if rank == 3 else (sizes[2], sizes[3])


def _resize(site: Site) -> Result:
    node = site.node
    first = 1 if node.version < 11 else 2  # scales; in between came a region
    if node.text("mode", "nearest") != "nearest" or site.rank() not in (3, 4):
        return None
    if node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    older = node.version < 11
    where = "asymmetric" if older else node.text("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if older else node.text("nearest_mode", "round_prefer_floor")
    scales, sizes = site.constant(first), site.constant(3) if first == 2 else None
    if "scales" in node.attrs:  # Upsample in opset 7
        scales = np.asarray(node.attrs["scales"], np.float32)
    if sizes is not None and sizes.size:
        return _to(site, _sizes(site, sizes), None, where, rounding)
    if scales is None or not scales.size:
        return None
    factors = _factors(site, scales)
    spatial = site.builder.graph.types[image(site)].shape or ()
    if None in spatial[1:3]:
        return _copied(site, factors, where, rounding)
    target = tuple(int(np.floor((d or 0) * f)) for d, f in zip(spatial[1:3], factors, strict=True))
    return _to(site, target, factors, where, rounding)


def _to(
    site: Site,
    target: tuple[int, ...],
    factors: tuple[float, ...] | None,
    where: str,
    rounding: str,
) -> Result:
    """The form of the IR's op that reads the very same elements, if there is one."""
    spatial = (site.builder.graph.types[image(site)].shape or ())[1:3]
    if None in spatial or not all(1 <= t <= LARGEST_SIDE for t in target):
        raise Inexpressible
    sizes = [d or 0 for d in spatial]
    ratios = factors or tuple(t / d for t, d in zip(target, sizes, strict=True))
    axes = list(zip(sizes, target, ratios, strict=True))
    wanted = [_indices(site, d, t, r, where, rounding) for d, t, r in axes]
    for attrs in FORMS:
        found = [_read_by(attrs, d, t) for d, t, _ in axes]
        if all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True)):
            return in_nhwc(site, "resize_nearest", size=target, **attrs)
    return None


def _read_by(attrs: Mapping[str, bool], size: int, out: int) -> Any:
    """Which element each result of the IR's op is."""
    resize: Any = op_definition("resize_nearest").evaluate
    column = np.arange(size).reshape(1, size, 1, 1)
    return np.ravel(resize({**attrs, "size": (out, 1)}, [column]))


def _indices(site: Site, size: int, out: int, ratio: float, where: str, rounding: str) -> Any:
    """Which element each result is, by the definition of ONNX."""
    at = np.arange(out)
    if where == "half_pixel" or (where == "pytorch_half_pixel" and out > 1):
        x = (at + 0.5) / ratio - 0.5
    elif where == "pytorch_half_pixel":
        x = np.zeros(out)
    elif where == "asymmetric":
        x = at / ratio
    elif where == "align_corners":
        x = at * ((size - 1) / (out - 1)) if out > 1 else np.zeros(out)
    else:
        raise Inexpressible
    rounded: Mapping[str, Callable[[Any], Any]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
    }
    if rounding not in rounded:
        raise GraphError(f"there is no nearest_mode `{rounding}`", node=site.name)
    return np.clip(rounded[rounding](x), 0, size - 1).astype(np.int64)


def _copied(site: Site, factors: tuple[float, ...], where: str, rounding: str) -> Result:
    """Whole factors on an image of unknown size: copies of each element, side by side."""
    times = int(factors[0])
    if factors != (times, times) or times * times > MOST_COPIES:
        return None
    ahead = _indices(site, 8, 8 * times, times, where, rounding)
    if not np.array_equal(ahead, np.repeat(np.arange(8), times)):
        return None
    x = image(site)
    copies = site.helper("copies", "concat", *[x] * (times * times), axis=3)
    return back(site, site.helper("nhwc", "depth_to_space", copies, block=times), site.rank())


def _depth_to_space(site: Site) -> Result:
    block, mode = site.node.integer("blocksize"), site.node.text("mode", "DCR")
    if site.rank() != 4 or block < 1:
        return None
    if mode == "DCR":
        return in_nhwc(site, "depth_to_space", block=block)
    shape = site.builder.graph.types[image(site)].shape or ()
    if mode != "CRD" or None in shape[1:]:
        return None
    _, height, width, channels = (d or 0 for d in shape)
    if channels % (block * block):
        raise GraphError(f"{channels} channels are no multiple of {block}²", node=site.name)
    split = (-1, height, width, channels // (block * block), block * block)
    parts = site.helper("split", "reshape", image(site), shape=split)
    turned = site.helper("turned", "transpose", parts, perm=(0, 1, 2, 4, 3))
    joined = site.helper("joined", "reshape", turned, shape=(-1, height, width, channels))
    return back(site, site.helper("nhwc", "depth_to_space", joined, block=block), 4)


def _space_to_depth(site: Site) -> Result:
    block = site.node.integer("blocksize")
    if site.rank() != 4 or block < 1:
        return None
    return in_nhwc(site, "space_to_depth", block=block)


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "Resize": _resize,
        "Upsample": _resize,
        "DepthToSpace": _depth_to_space,
        "SpaceToDepth": _space_to_depth,
    }
)
