"""Nearest-neighbour resizing, and ops that trade space for depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.layout import back, image, in_nhwc
from qgraph.frontends.partial import Partial
from qgraph.ir.ops.movement import nearest
from qgraph.ir.types import Array

MAX_COPIES = 64
MAX_SIDE = 1 << 16
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
    rounding = "floor" if older else node.text("nearest_mode", "round_prefer_floor")
    if node.text("mode", "nearest") != "nearest" or site.rank() not in (3, 4):
        return None
    if where != "tf_crop_and_resize":
        site.without_effect("extrapolation_value")
        if not older:
            site.without_effect(1)  # the region
    # Attributes of interpolation, unused for nearest neighbours.
    site.without_effect("cubic_coeff_a", "exclude_outside", "antialias")
    sizes = None if older or not site.has(3) else site.partial(3)
    if sizes is not None and sizes.values.size:
        if node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
            return None
        site.without_effect(2)
        return _to(site, _sizes(site, sizes), None, where, rounding)
    site.without_effect("keep_aspect_ratio_policy", *(() if older else (3,)))
    scales = site.small_constant(first)
    if "scales" in node.attrs:  # Upsample in opset 7
        scales = np.asarray(node.attrs["scales"], np.float32)
    if scales is None or not scales.size:
        return None
    factors = _factors(site, scales)
    spatial = site.builder.graph.types[image(site)].shape or ()
    if None in spatial[1:3]:
        return _copied(site, factors, where, rounding)
    target = tuple(int(np.floor((d or 0) * f)) for d, f in zip(spatial[1:3], factors, strict=True))
    return _to(site, target, factors, where, rounding)


def _to(
    site: OnnxSite,
    target: tuple[int, ...],
    factors: tuple[float, ...] | None,
    where: str,
    rounding: str,
) -> Result:
    """The form of the IR's op that reads the same elements, if there is one."""
    spatial = (site.builder.graph.types[image(site)].shape or ())[1:3]
    if None in spatial or not all(1 <= t <= MAX_SIDE for t in target):
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


def _read_by(attrs: Mapping[str, bool], size: int, out: int) -> Array:
    """Index of the element that each result of the IR's op is."""
    return nearest(size, out, **attrs)


def _indices(site: OnnxSite, size: int, out: int, ratio: float, where: str, rounding: str) -> Array:
    """Index of the element that each result is, by the definition of ONNX."""
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
    rounded: Mapping[str, Callable[[Array], Array]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
    }
    if rounding not in rounded:
        raise GraphError(f"unknown nearest_mode `{rounding}`", node=site.name)
    return np.clip(rounded[rounding](x), 0, size - 1).astype(np.int64)


def _copied(site: OnnxSite, factors: tuple[float, ...], where: str, rounding: str) -> Result:
    """Integer factors on an image of unknown size: adjacent copies of each element."""
    times = int(factors[0])
    if factors != (times, times) or times * times > MAX_COPIES:
        return None
    ahead = _indices(site, 8, 8 * times, times, where, rounding)
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
