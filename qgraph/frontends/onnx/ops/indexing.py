"""Ops that read or write elements at places that are known on import: gather, scatter, masks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from qgraph.errors import GraphError
from qgraph.frontends.cumulative import cumulative
from qgraph.frontends.embeddings import INDICES, one_hot, selected_rows
from qgraph.frontends.inexpressible import Inexpressible
from qgraph.frontends.onnx.builder import Importer, OnnxSite, Result
from qgraph.frontends.onnx.ops.slicing import MAX_INDICES
from qgraph.ir.types import Codes

# The op of a reduction, and the number that changes nothing.
REDUCTIONS: Mapping[str, tuple[str, float]] = {
    "add": ("add", 0), "mul": ("mul", 1), "max": ("maximum", -np.inf), "min": ("minimum", np.inf),
}  # fmt: skip


def _shape(site: OnnxSite) -> tuple[int, ...]:
    """The shape of the first input, which has to be known."""
    shape = site.known_shape()
    if None in shape:
        raise Inexpressible
    return tuple(d or 0 for d in shape)


def _places(shape: tuple[int, ...]) -> Codes:
    """The number of each element."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def _at(site: OnnxSite, places: Codes) -> Result:
    """The elements of these numbers."""
    if places.size > MAX_INDICES or site.type().dtype == "string":
        raise Inexpressible
    flat = site.helper("flat", "reshape", site.inputs[0], shape=(-1,))
    taken = tuple(places.reshape(-1).tolist())
    picked = site.helper("picked", "take", flat, axis=0, indices=taken)
    return site.emit("reshape", picked, shape=places.shape)


def _constant_indices(site: OnnxSite, i: int) -> Codes:
    indices = site.constant(i)
    if indices is None:
        raise Inexpressible
    return indices.astype(np.int64)


def _gather_elements(site: OnnxSite) -> Result:
    """Constant indices, or those of each sample in rows along one axis."""
    if site.constant(1) is None:
        return _elements_of_samples(site)
    shape, indices = _shape(site), _constant_indices(site, 1)
    axis = site.axis(site.node.integer("axis"), len(shape))
    return _at(site, _along(site, _places(shape), _in_range(site, indices, shape[axis]), axis))


def _elements_of_samples(site: OnnxSite) -> Result:
    shape, indices, rank = site.known_shape(), site.type(1), site.rank()
    axis = site.axis(site.node.integer("axis"), rank)
    size = shape[axis]
    same = indices.shape and [*indices.shape[:axis], size, *indices.shape[axis + 1 :]] == [*shape]
    if not same or not axis or size is None or indices.dtype not in INDICES:
        raise Inexpressible
    last = (*range(axis), *range(axis + 1, rank), axis)
    places, x = _from_front(site, site.inputs[1], size), site.inputs[0]
    if axis == rank - 1:
        return selected_rows(site, x, places, axis)
    places = site.helper("places_last", "transpose", places, perm=last)
    x = site.helper("last", "transpose", x, perm=last)
    made = selected_rows(site, x, places, rank - 1, what="selected")
    back = tuple(last.index(i) for i in range(rank))
    return None if made is None else site.emit("transpose", made, perm=back)


def _from_front(site: OnnxSite, index: str, size: int) -> str:
    """Indices of any sign, from the front of an axis of this size."""
    kind = np.dtype(site.builder.graph.types[index].dtype)
    start = site.const(np.zeros((), kind), "start")
    negative = site.helper("negative", "greater", start, index)
    turned = site.helper("turned", "add", index, site.const(np.asarray(size, kind), "depth"))
    return site.helper("index", "select", negative, turned, index)


def _in_range(site: OnnxSite, indices: Codes, size: int) -> Codes:
    """Indices from the front."""
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        raise GraphError(f"an index outside of {size}", node=site.name)
    return np.where(indices < 0, indices + size, indices)


def _along(site: OnnxSite, places: Codes, indices: Codes, axis: int) -> Codes:
    """`places` at `indices` along an axis, and at the same place along all others."""
    if indices.ndim != places.ndim:
        raise GraphError(f"indices of {indices.shape} for {site.type()}", node=site.name)
    index: list[Codes] = list(np.indices(indices.shape, sparse=True))
    index[axis] = indices
    found: Codes = places[tuple(index)]
    return found


def _gather_nd(site: OnnxSite) -> Result:
    """Constant indices, any indices of a table's rows, or one index of a row in each sample."""
    wanted, kind = site.shape(1), site.type(1).dtype
    if site.constant(1) is None and site.constant(0) is not None and wanted and kind in INDICES:
        if wanted[-1] != 1 or site.node.integer("batch_dims") or not site.type().is_float:
            return None
        index = site.helper("index", "squeeze", site.inputs[1], axes=(len(wanted) - 1,))
        return site.emit("embedding", site.inputs[0], index)
    batch = site.node.integer("batch_dims")
    if site.constant(1) is None and batch and wanted and wanted[-1] == 1 and kind in INDICES:
        size = site.known_shape()[batch]
        index = site.helper("index", "squeeze", site.inputs[1], axes=(len(wanted) - 1,))
        return (
            None
            if size is None
            else selected_rows(site, site.inputs[0], _from_front(site, index, size), batch)
        )
    shape, indices = _shape(site), _constant_indices(site, 1)
    if not 0 <= batch < min(indices.ndim, len(shape)):
        raise Inexpressible
    own: list[Codes] = list(np.indices(indices.shape[:-1], sparse=True))[:batch]
    depth = indices.shape[-1]
    parts = [_in_range(site, indices[..., k], shape[batch + k]) for k in range(depth)]
    return _at(site, _places(shape)[(*own, *parts)])


def _compress(site: OnnxSite) -> Result:
    condition, shape = site.constant(1), _shape(site)
    if condition is None or condition.ndim != 1:
        return None
    chosen = np.flatnonzero(condition)
    if "axis" not in site.node.attrs:
        return _at(site, _places(shape).reshape(-1)[chosen])
    axis = site.axis(site.node.integer("axis"), len(shape))
    return site.emit("take", site.inputs[0], axis=axis, indices=tuple(chosen.tolist()))


def _scattered(site: OnnxSite, places: Codes) -> Result:
    """Write the constant third input to elements of these numbers."""
    updates, reduction = site.constant(2), site.node.text("reduction", "none")
    kind = np.dtype(site.type().dtype)
    if updates is None or kind.kind not in "fiu" or updates.size != places.size:
        return None
    shape, x = _shape(site), site.inputs[0]
    values, flat = updates.reshape(-1), places.reshape(-1)
    if reduction == "none":
        written = np.zeros(math.prod(shape), bool)
        filled = np.zeros(math.prod(shape), kind)
        written[flat], filled[flat] = True, values
        mask = site.const(written.reshape(shape), "written")
        return site.emit("select", mask, site.const(filled.reshape(shape), "values"), x)
    if reduction not in REDUCTIONS or kind.kind != "f":
        return None
    op, neutral = REDUCTIONS[reduction]
    functions: Mapping[str, np.ufunc] = {
        "add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum
    }  # fmt: skip
    whole = np.full(math.prod(shape), neutral, kind)
    functions[op].at(whole, flat, values)
    return site.emit(op, x, site.const(whole.reshape(shape), "values"))


def _scatter_elements(site: OnnxSite) -> Result:
    shape, indices = _shape(site), _constant_indices(site, 1)
    axis = site.axis(site.node.integer("axis"), len(shape))
    return _scattered(
        site, _along(site, _places(shape), _in_range(site, indices, shape[axis]), axis)
    )


def _scatter_nd(site: OnnxSite) -> Result:
    shape, indices = _shape(site), _constant_indices(site, 1)
    parts = [_in_range(site, indices[..., k], shape[k]) for k in range(indices.shape[-1])]
    return _scattered(site, _places(shape)[tuple(parts)])


def _trilu(site: OnnxSite) -> Result:
    shape, kind = site.known_shape(), np.dtype(site.type().dtype)
    k = site.constant(1) if site.has(1) else np.int64(0)
    if k is None or len(shape) < 2 or None in shape[-2:] or kind.kind not in "fiu":
        return None
    rows, columns = (d or 0 for d in shape[-2:])
    offset, upper = int(np.reshape(k, ())), site.node.flag("upper", True)
    lower = np.tri(rows, columns, offset - 1 if upper else offset, dtype=bool)
    mask = site.const(~lower if upper else lower, "mask")
    return site.emit("select", mask, site.inputs[0], site.const(np.zeros((), kind), "zero"))


def _cumulative_sum(site: OnnxSite) -> Result:
    axes = site.integers(1)
    if axes is None or site.type().rank is None:
        return None
    axis = site.axis(axes[0], site.rank())
    return cumulative(site, axis, site.node.flag("exclusive"), site.node.flag("reverse"))


def _hardmax(site: OnnxSite) -> Result:
    """1 at the first of the largest elements along an axis, else 0."""
    rank, newer = site.rank(), site.node.version >= 13
    axis = site.axis(site.node.integer("axis", -1 if newer else 1), rank)
    size = site.known_shape()[axis]
    if not site.type().is_float or size is None or not (newer or axis == rank - 1):
        return None
    found = site.helper("place", "argmax", site.inputs[0], axis=axis, dtype="int64")
    place = site.helper("kept", "expand_dims", found, axis=axis)
    target = [1] * rank
    target[axis] = size
    each = site.const(np.arange(size, dtype=np.int64).reshape(target), "each")
    same = site.helper("same", "equal", place, each)
    return site.emit("cast", same, dtype=site.type().dtype)


def _one_hot(site: OnnxSite) -> Result:
    """The second of two values at each index, else the first; negative ones count from the end."""
    depth, kind, values = site.small_constant(1), site.type().dtype, site.type(2)
    if depth is None or values.shape != (2,) or kind in ("string", "bool"):
        return None
    size, rank = int(np.reshape(depth, ())), site.rank()
    axis = site.axis(site.node.integer("axis", -1), rank + 1)
    if values.dtype == "string":
        return None
    x = site.helper("whole", "cast", site.inputs[0], dtype="int64") if kind != "int64" else ""
    index = _from_front(site, x or site.inputs[0], size)
    off, on = (_element(site, place) for place in (0, 1))
    return one_hot(site, index, size, axis, off, on)


def _element(site: OnnxSite, place: int) -> str:
    """One of the two values of a one-hot vector, as a scalar."""
    values = site.constant(2)
    if values is not None:
        return site.const(values[place], f"value{place}")
    part = {"begin": (place,), "end": (place + 1,), "strides": (1,)}
    one = site.helper(f"part{place}", "slice", site.inputs[2], **part)
    return site.helper(f"value{place}", "squeeze", one, axes=(0,))


# -- losses of known labels ----------------------------------------------------------------------


def _loss(site: OnnxSite, x: str) -> Result:
    """The negative log likelihood of `x`, log probabilities along axis 1, for constant labels."""
    shape, labels = _shape(site), _constant_indices(site, 1)
    reduction, ignored = site.node.text("reduction", "mean"), site.node.attrs.get("ignore_index")
    weights = site.constant(2) if site.has(2) else np.ones(shape[1])
    if weights is None or labels.shape != (shape[0], *shape[2:]) or weights.shape != shape[1:2]:
        raise Inexpressible
    counted = np.ones(labels.shape, bool)
    if ignored is not None:
        counted = labels != site.node.integer("ignore_index")
    known = np.where(counted, labels, 0)
    share = np.where(counted, weights[known], 0.0)
    each = np.arange(shape[1]).reshape(1, -1, *(1,) * (len(shape) - 2))
    factor = np.where(known[:, None] == each, -share[:, None], 0.0)
    if reduction == "mean":
        factor = factor / share.sum()
    kind = np.dtype(site.type().dtype)
    product = site.helper("weighted", "mul", x, site.const(factor.astype(kind), "weights"))
    axes = (1,) if reduction == "none" else tuple(range(len(shape)))
    return site.helper("loss", "sum", product, axes=axes, keepdims=False)


def _likelihood(site: OnnxSite) -> Result:
    if not site.type().is_float:
        return None
    made = _loss(site, site.inputs[0])
    return site.emit("identity", made) if isinstance(made, str) else None


def _cross_entropy(site: OnnxSite) -> Result:
    """The loss, and perhaps the log probabilities."""
    rank = site.rank()
    if not site.type().is_float or rank < 2:
        return None
    last = (0, *range(2, rank), 1)
    turned = site.helper("turned", "transpose", site.inputs[0], perm=last)
    log = site.helper("log", "log_softmax", turned, axis=-1)
    back = tuple(last.index(axis) for axis in range(rank))
    probabilities = site.helper("probabilities", "transpose", log, perm=back)
    made = _loss(site, probabilities)
    if not isinstance(made, str):
        return None
    loss = site.emit("identity", made)
    return (loss, probabilities) if any(site.node.outputs[1:]) else loss


IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "GatherElements": _gather_elements,
        "GatherND": _gather_nd,
        "Compress": _compress,
        "Scatter": _scatter_elements,
        "ScatterElements": _scatter_elements,
        "ScatterND": _scatter_nd,
        "Trilu": _trilu,
        "CumSum": _cumulative_sum,
        "Hardmax": _hardmax,
        "OneHot": _one_hot,
        "NegativeLogLikelihoodLoss": _likelihood,
        "SoftmaxCrossEntropyLoss": _cross_entropy,
    }
)
