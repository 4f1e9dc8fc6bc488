"""Resizing, and ops that trade space for depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.layout import back, image, in_nhwc
from qgraph.frontends.partial import Partial
from qgraph.frontends.resampled import (
    LINEAR,
    MAX_SIDE,
    Taps,
    cubic,
    interpolated,
    only_inside,
    resampled,
)
from qgraph.frontends.resampled import nearest as nearest_taps
from qgraph.ir.ops.movement import nearest
from qgraph.ir.types import Array, Codes

MAX_COPIES = 64
# Forms of the IR's op: plain, half-pixel centres, aligned corners.
FORMS = (
    {"align_corners": False, "half_pixel": False},
    {"align_corners": False, "half_pixel": True},
    {"align_corners": True, "half_pixel": False},
)


def _factors(site: OnnxSite, values: Array) -> tuple[float, ...]:
    """Factors of height and width, from those of all axes."""
    rank = site.rank()
    scales = [float(v) for v in np.ravel(values)]
    axes = site.node.integers("axes")
    if axes is not None:
        given = {site.axis(a, rank): s for a, s in zip(axes, scales, strict=True)}
        scales = [given.get(a, 1.0) for a in range(rank)]
    if len(scales) != rank or any(s != 1 for s in scales[:2]) or min(scales) <= 0:
        raise Inexpressible
    return (1.0, scales[2]) if rank == 3 else (scales[2], scales[3])


def _sizes(site: OnnxSite, given: Partial) -> tuple[int, ...]:
    """The requested height and width; batch and channels must stay the same."""
    rank, have = site.rank(), site.dims()
    axes = site.node.integers("axes")
    places = range(rank) if axes is None else [site.axis(a, rank) for a in axes]
    if have is None or given.values.ndim != 1 or len(places) != given.values.size:
        raise Inexpressible
    values, unknown = have.values.copy(), have.unknown.copy()
    values[list(places)], unknown[list(places)] = given.values, given.unknown
    for at in (0, 1):
        own, wanted = have.unknown[at], unknown[at]
        baked = at == 0 and own is not None and wanted is None  # the batch size of the exporter
        if not baked and (own != wanted or (own is None and values[at] != have.values[at])):
            raise Inexpressible
    if any(u is not None for u in unknown[2:]):
        raise Inexpressible
    return (1, int(values[2])) if rank == 3 else (int(values[2]), int(values[3]))


def _resize(site: OnnxSite) -> Result:
    node, older = site.node, site.node.version < 11
    first = 1 if older else 2  # scales; in between came a region
    where = "asymmetric" if older else node.text("coordinate_transformation_mode", "half_pixel")
    mode = node.text("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic") or site.rank() not in (3, 4):
        return None
    if where != "tf_crop_and_resize":
        site.without_effect("extrapolation_value")
        if not older:
            site.without_effect(1)  # the region
    if mode != "nearest":
        site.without_effect("nearest_mode")
    else:
        site.without_effect("exclude_outside", "antialias")
    if mode != "cubic":
        site.without_effect("cubic_coeff_a")
    sizes = None if older or not site.has(3) else site.partial(3)
    if sizes is not None and sizes.values.size:
        site.without_effect(2)
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        return _to(site, *_kept_ratio(site, _sizes(site, sizes), policy), where)
    site.without_effect("keep_aspect_ratio_policy", *(() if older else (3,)))
    scales = site.small_constant(first)
    if "scales" in node.attrs:  # Upsample in opset 7
        scales = np.asarray(node.attrs["scales"], np.float32)
    if scales is None or not scales.size:
        return None
    factors = _factors(site, scales)
    spatial = site.builder.graph.types[image(site)].shape or ()
    if None in spatial[1:3]:
        if mode != "nearest":
            return None
        return _copied(site, factors, where, _rounding(site))
    target = tuple(int(np.floor((d or 0) * f)) for d, f in zip(spatial[1:3], factors, strict=True))
    return _to(site, target, factors, where)


def _rounding(site: OnnxSite) -> str:
    if site.node.version < 11:
        return "floor"
    return site.node.text("nearest_mode", "round_prefer_floor")


def _kept_ratio(
    site: OnnxSite, target: tuple[int, ...], policy: str
) -> tuple[tuple[int, ...], tuple[float, ...] | None]:
    """Height and width, and factors where both have the same one: the smaller or the larger."""
    if policy == "stretch":
        return target, None
    choose: Callable[[Iterable[float]], float] | None
    choose = {"not_larger": min, "not_smaller": max}.get(policy)
    rank, axes = site.rank(), site.node.integers("axes")
    places = range(rank) if axes is None else [site.axis(a, rank) for a in axes]
    shape = site.known_shape()
    if choose is None or rank != 4 or None in shape[2:] or set(places) != {2, 3}:
        raise Inexpressible
    have = [d or 0 for d in shape[2:]]
    factor = choose(t / d for t, d in zip(target, have, strict=True))
    return tuple(int(np.floor(factor * d + 0.5)) for d in have), (factor, factor)


def _to(
    site: OnnxSite, target: tuple[int, ...], factors: tuple[float, ...] | None, where: str
) -> Result:
    """The image in another size."""
    spatial = (site.builder.graph.types[image(site)].shape or ())[1:3]
    if None in spatial or not all(1 <= t <= MAX_SIDE for t in target):
        raise Inexpressible
    sizes = [d or 0 for d in spatial]
    ratios = factors or tuple(t / d for t, d in zip(target, sizes, strict=True))
    axes = list(zip(sizes, target, ratios, _regions(site, where), strict=True))
    positions = [_positions(where, *axis) for axis in axes]
    mode = site.node.text("mode", "nearest")
    if mode == "nearest":
        in_float32 = [_positions(where, *axis, dtype=np.float32) for axis in axes]
        return _picked(site, sizes, (positions, in_float32), target)
    ends = zip(sizes, target, ratios, strict=True)
    if where == "align_corners" and any(d * r != t for d, t, r in ends):
        raise Inexpressible  # the definition of ONNX and its runtimes differ
    if site.type().dtype not in ("float32", "float64"):
        raise Inexpressible
    taps = [
        _interpolated(site, mode, size, x, ratio)
        for (size, _, ratio, _), x in zip(axes, positions, strict=True)
    ]
    return back(site, resampled(site, image(site), *taps), site.rank())


def _picked(
    site: OnnxSite,
    sizes: Sequence[int],
    positions: tuple[Sequence[Array], Sequence[Array]],
    target: tuple[int, ...],
) -> Result:
    """The nearest elements, by the IR's op for images if one of its forms picks the same.

    Runtimes compute positions in float32; where that picks others, they do not agree.
    """
    rounding = _rounding(site)
    wanted, in_float32 = (
        [_rounded(site, x, rounding, size) for x, size in zip(each, sizes, strict=True)]
        for each in positions
    )
    for attrs in FORMS:
        found = [_read_by(attrs, d, t) for d, t in zip(sizes, target, strict=True)]
        if all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True)):
            return in_nhwc(site, "resize_nearest", size=target, **attrs)
    if not all(np.array_equal(a, b) for a, b in zip(wanted, in_float32, strict=True)):
        raise Inexpressible
    taps = [nearest_taps(size, indices) for size, indices in zip(sizes, wanted, strict=True)]
    return back(site, resampled(site, image(site), *taps), site.rank())


def _interpolated(site: OnnxSite, mode: str, size: int, x: Array, ratio: float) -> Taps:
    kernel = LINEAR if mode == "linear" else cubic(site.node.real("cubic_coeff_a", -0.75))
    stretch = max(1 / ratio, 1.0) if site.node.flag("antialias") else 1.0
    taps = interpolated(size, x, kernel, stretch=stretch)
    return only_inside(taps) if site.node.flag("exclude_outside") else taps


def _read_by(attrs: Mapping[str, bool], size: int, out: int) -> Array:
    """Index of the element that each result of the IR's op is."""
    return nearest(size, out, **attrs)


def _regions(site: OnnxSite, where: str) -> list[tuple[float, float]]:
    """The part of each axis that becomes the image, as a share of its length."""
    whole = [(0.0, 1.0), (0.0, 1.0)]
    if where != "tf_crop_and_resize":
        return whole
    region, rank = site.small_constant(1), site.rank()
    if region is None or rank != 4:
        raise Inexpressible
    axes = site.node.integers("axes")
    places = tuple(range(rank)) if axes is None else tuple(site.axis(a, rank) for a in axes)
    ends = np.ravel(region).astype(np.float64).reshape(2, -1)
    found = {axis: (float(a), float(b)) for axis, a, b in zip(places, *ends, strict=True)}
    if any(found.get(axis, whole[0]) != whole[0] for axis in (0, 1)):
        raise Inexpressible
    parts = [found.get(axis, whole[0]) for axis in (2, 3)]
    if any(not 0 <= end <= 1 for part in parts for end in part):
        raise Inexpressible  # positions outside of the image have a number of their own
    site.without_effect("extrapolation_value")
    return parts


def _positions(
    where: str,
    size: int,
    out: int,
    ratio: float,
    region: tuple[float, float],
    dtype: type = np.float64,
) -> Array:
    """The position in the image of each result, by the definition of ONNX."""
    at: Array = np.arange(out, dtype=dtype)
    ratio = dtype(ratio)
    if where == "half_pixel" or (where == "pytorch_half_pixel" and out > 1):
        return (at + 0.5) / ratio - 0.5
    if where == "half_pixel_symmetric":
        share = out / (ratio * size)  # the part of the image that whole elements fill
        return size / 2 * (1 - share) + (at + 0.5) / ratio - 0.5
    if where == "pytorch_half_pixel":
        return np.zeros(out)
    if where == "asymmetric":
        return at / ratio
    if where == "align_corners":
        return at * ((size - 1) / (out - 1)) if out > 1 else np.zeros(out)
    if where == "tf_crop_and_resize":
        start, end = ((size - 1) * share for share in region)
        return (
            start + at * ((end - start) / (out - 1)) if out > 1 else np.full(1, (start + end) / 2)
        )
    raise Inexpressible


def _rounded(site: OnnxSite, x: Array, rounding: str, size: int) -> Codes:
    """The index of the element at each position."""
    known: Mapping[str, Callable[[Array], Array]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
    }
    if rounding not in known:
        raise GraphError(f"unknown nearest_mode `{rounding}`", node=site.name)
    return np.clip(known[rounding](x), 0, size - 1).astype(np.int64)


def _copied(site: OnnxSite, factors: tuple[float, ...], where: str, rounding: str) -> Result:
    """Integer factors on an image of unknown size: adjacent copies of each element."""
    times = int(factors[0])
    if factors != (times, times) or times * times > MAX_COPIES:
        return None
    positions = _positions(where, 8, 8 * times, times, (0.0, 1.0))
    ahead = _rounded(site, positions, rounding, 8)
    if not np.array_equal(ahead, np.repeat(np.arange(8), times)):
        return None
    x = image(site)
    copies = site.helper("copies", "concat", *[x] * (times * times), axis=3)
    return back(site, site.helper("nhwc", "depth_to_space", copies, block=times), site.rank())


def _depth_to_space(site: OnnxSite) -> Result:
    block, crd = _block(site)
    x = image(site)
    if crd:
        x = _exchanged(site, x, lambda channels: (channels // block**2, block**2))
    return back(site, site.helper("nhwc", "depth_to_space", x, block=block), 4)


def _space_to_depth(site: OnnxSite) -> Result:
    block, crd = _block(site)
    made = site.helper("blocks", "space_to_depth", image(site), block=block)
    if crd:
        made = _exchanged(site, made, lambda channels: (block**2, channels // block**2))
    return back(site, made, 4)


def _block(site: OnnxSite) -> tuple[int, bool]:
    """The side of a block, and whether the position in it is counted before the channel."""
    block, mode = site.node.integer("blocksize"), site.node.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise GraphError(f"unknown mode `{mode}`; DCR and CRD exist", node=site.name)
    if site.rank() != 4 or block < 1:
        raise Inexpressible
    return block, mode == "CRD"


def _exchanged(site: OnnxSite, x: str, split: Callable[[int], tuple[int, int]]) -> str:
    """Split the last axis of `x` into two and exchange them."""
    shape = site.builder.graph.types[x].shape or ()
    if None in shape[1:]:
        raise Inexpressible
    _, height, width, channels = (d or 0 for d in shape)
    outer, inner = split(channels)
    if outer * inner != channels:
        raise GraphError(f"{channels} channels do not divide into blocks", node=site.name)
    parts = site.helper("split", "reshape", x, shape=(-1, height, width, outer, inner))
    turned = site.helper("turned", "transpose", parts, perm=(0, 1, 2, 4, 3))
    return site.helper("joined", "reshape", turned, shape=(-1, height, width, channels))


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "Resize": _resize,
        "Upsample": _resize,
        "DepthToSpace": _depth_to_space,
        "SpaceToDepth": _space_to_depth,
    }
)
