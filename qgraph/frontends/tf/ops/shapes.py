"""Partial evaluation of computations on shapes that are known on import."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from qgraph.frontends.division import Quotient, divided, number_range, remainder
from qgraph.frontends.partial import (
    MAX_TRACKED,
    Partial,
    joined,
    joint_shape,
    plain_arithmetic,
    reduced,
)
from qgraph.frontends.site import Partials, of_all, of_elements
from qgraph.frontends.tf.builder import Evaluator, TfSite
from qgraph.frontends.tf.node import NOT_NUMPY
from qgraph.frontends.tf.ops.slicing import strided_spec
from qgraph.ir.types import Array


def _shape(site: TfSite) -> Partials:
    found = [site.dims(i, site.node.dtype("out_type", "int32")) for i in range(len(site.inputs))]
    known = tuple(f for f in found if f is not None)
    return known if len(known) == len(found) else None


def _size(site: TfSite) -> Partials:
    dims = site.dims(0, site.node.dtype("out_type", "int32"))
    return None if dims is None else (reduced(np.prod, dims, (0,), False),)


def _rank(site: TfSite) -> Partials:
    rank = site.type().rank
    return None if rank is None else (Partial.known(np.int32(rank)),)


def _quotient(kind: Quotient) -> Callable[[TfSite, list[Partial]], Partial | None]:
    return lambda site, args: divided(args, kind)


def _reduction(function: Callable[..., Array]) -> Evaluator:
    def evaluate(site: TfSite, args: list[Partial]) -> Partial | None:
        x, axes = args
        if not axes.complete:
            return None
        at = tuple(int(a) for a in np.ravel(axes.values))
        return reduced(function, x, at, site.node.flag("keep_dims"))

    return of_all(evaluate)


def _cast(site: TfSite, args: list[Partial]) -> Partial | None:
    dtype = site.node.dtype("DstT", "")
    if not dtype or dtype in NOT_NUMPY:
        return None
    return Partial(args[0].values.astype(dtype), args[0].unknown)


def _pack(site: TfSite, args: list[Partial]) -> Partial:
    return joined(args, lambda parts: np.stack(parts, site.node.integer("axis")))


def _concat(site: TfSite, args: list[Partial]) -> Partial | None:
    axis, parts = (args[0], args[1:]) if site.node.op == "Concat" else (args[-1], args[:-1])
    if not axis.complete:
        return None
    return joined(parts, lambda arrays: np.concatenate(arrays, int(axis.values)))


def _indexed(site: TfSite, args: list[Partial]) -> Partial | None:
    x, begin, end, strides = args
    if not (begin.complete and end.complete and strides.complete):
        return None
    bounds = (part.values.tolist() for part in (begin, end, strides))
    spec = strided_spec(site.node, *bounds)
    return x.moved(lambda a: a[spec.entries])


def _slice(site: TfSite, args: list[Partial]) -> Partial | None:
    x, begin, size = args
    if not (begin.complete and size.complete):
        return None
    index = tuple(
        slice(b, None if s == -1 else b + s)
        for b, s in zip(begin.values.tolist(), size.values.tolist(), strict=True)
    )
    return x.moved(lambda a: a[index])


def _gather(site: TfSite, args: list[Partial]) -> Partial | None:
    x, indices = args[0], args[1].values.astype(np.int64)
    axis = int(args[2].values) if len(args) > 2 else 0
    if not all(a.complete for a in args[1:]) or site.node.integer("batch_dims"):
        return None
    return x.moved(lambda a: np.take(a, indices, axis))


def _expand_dims(site: TfSite, args: list[Partial]) -> Partial | None:
    if not args[1].complete:
        return None
    axis = int(np.ravel(args[1].values)[0])
    return args[0].moved(lambda a: np.expand_dims(a, axis))


def _squeeze(site: TfSite, args: list[Partial]) -> Partial:
    axes = site.node.integers("squeeze_dims") or None
    return args[0].moved(lambda a: np.squeeze(a, axes))


def _reshape(site: TfSite, args: list[Partial]) -> Partial | None:
    if not args[1].complete:
        return None
    return args[0].moved(lambda a: np.reshape(a, tuple(args[1].values.tolist())))


def _unpack(site: TfSite, args: list[Partial]) -> tuple[Partial, ...]:
    axis = site.node.integer("axis")
    count = args[0].values.shape[axis]
    return tuple(args[0].moved(partial(np.take, indices=k, axis=axis)) for k in range(count))


def _fill(site: TfSite, args: list[Partial]) -> Partial | None:
    dims, value = args
    if not dims.complete or math.prod(dims.values.tolist()) > MAX_TRACKED:
        return None
    return value.moved(lambda a: np.full(tuple(dims.values.tolist()), a))


def _select(site: TfSite, args: list[Partial]) -> Partial | None:
    condition, yes, no = args
    if not condition.complete or condition.values.ndim:
        return None
    shape = joint_shape((yes, no))
    return (yes if condition.values else no).moved(lambda a: np.broadcast_to(a, shape))


def _same(site: TfSite, args: list[Partial]) -> Partial:
    return args[0]


EVALUATORS: Mapping[str, Evaluator] = MappingProxyType(
    {
        "Shape": _shape,
        "ShapeN": _shape,
        "Size": _size,
        "Rank": _rank,
        "Add": of_elements(np.add),
        "AddV2": of_elements(np.add),
        "Sub": of_elements(np.subtract),
        "Mul": of_elements(np.multiply),
        "Minimum": of_elements(np.minimum),
        "Maximum": of_elements(np.maximum),
        "FloorDiv": of_all(_quotient(Quotient.FLOOR)),
        "RealDiv": of_all(_quotient(Quotient.PLAIN)),
        "Div": of_all(_quotient(Quotient.PLAIN)),
        "TruncateDiv": of_all(_quotient(Quotient.TRUNCATED)),
        "FloorMod": of_all(lambda site, args: remainder(args)),
        "Equal": of_elements(np.equal, "bool"),
        "NotEqual": of_elements(np.not_equal, "bool"),
        "Less": of_elements(np.less, "bool"),
        "LessEqual": of_elements(np.less_equal, "bool"),
        "Greater": of_elements(np.greater, "bool"),
        "GreaterEqual": of_elements(np.greater_equal, "bool"),
        "LogicalAnd": of_elements(np.logical_and, "bool"),
        "LogicalOr": of_elements(np.logical_or, "bool"),
        "LogicalNot": of_elements(np.logical_not, "bool"),
        **{name: of_all(evaluate) for name, evaluate in plain_arithmetic("tensorflow")},
        "Floor": of_elements(np.floor),
        "Ceil": of_elements(np.ceil),
        "Prod": _reduction(np.prod),
        "Sum": _reduction(np.sum),
        "Max": _reduction(np.max),
        "Min": _reduction(np.min),
        "All": _reduction(np.all),
        "Any": _reduction(np.any),
        "Cast": of_all(_cast),
        "Pack": of_all(_pack),
        "ConcatV2": of_all(_concat),
        "Concat": of_all(_concat),
        "StridedSlice": of_all(_indexed),
        "Slice": of_all(_slice),
        "Gather": of_all(_gather),
        "GatherV2": of_all(_gather),
        "ExpandDims": of_all(_expand_dims),
        "Squeeze": of_all(_squeeze),
        "Reshape": of_all(_reshape),
        "Unpack": of_all(_unpack),
        "Range": of_all(lambda site, args: number_range(args)),
        "Fill": of_all(_fill),
        "Select": of_all(_select),
        "SelectV2": of_all(_select),
        "Identity": of_all(_same),
        "StopGradient": of_all(_same),
        "PlaceholderWithDefault": of_all(_same),
    }
)
