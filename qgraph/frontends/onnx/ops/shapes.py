"""Partial evaluation of computations on shapes that are known on import."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from qgraph.frontends.division import Quotient, divided, number_range, remainder
from qgraph.frontends.onnx.builder import Evaluator, OnnxSite
from qgraph.frontends.onnx.tensors import NUMPY, dtype_name
from qgraph.frontends.partial import (
    MAX_TRACKED,
    Partial,
    elementwise,
    joined,
    joint_shape,
    plain_arithmetic,
    reduced,
)
from qgraph.frontends.site import Partials, of_all, of_elements
from qgraph.ir.types import Array


def _shape(site: OnnxSite) -> Partials:
    dims = site.dims()
    if dims is None:
        return None
    end = site.node.integer("end", dims.values.size)
    window = slice(site.node.integer("start"), end)
    return (dims.moved(lambda a: a[window]),)


def _size(site: OnnxSite) -> Partials:
    dims = site.dims()
    return None if dims is None else (reduced(np.prod, dims, (0,), False),)


def _modulo(site: OnnxSite, args: list[Partial]) -> Partial | None:
    return None if site.node.flag("fmod") else remainder(args)


def _folded(function: Callable[[Array, Array], Array]) -> Evaluator:
    def evaluate(site: OnnxSite, args: list[Partial]) -> Partial:
        total = args[0]
        for term in args[1:]:
            total = elementwise(function, [total, term])
        return total

    return of_all(evaluate)


def _reduction(function: Callable[..., Array]) -> Evaluator:
    def evaluate(site: OnnxSite, args: list[Partial]) -> Partial | None:
        x = args[0]
        axes = site.setting("axes", 1)
        if not axes and site.node.flag("noop_with_empty_axes"):
            return x
        at = tuple(axes) if axes else tuple(range(x.values.ndim))
        return reduced(function, x, at, site.node.flag("keepdims", True))

    return of_all(evaluate)


def _cast(site: OnnxSite, args: list[Partial]) -> Partial | None:
    dtype = dtype_name(site.node.integer("to"), site.name)
    return Partial(args[0].values.astype(dtype), args[0].unknown) if dtype in NUMPY else None


def _concat(site: OnnxSite, args: list[Partial]) -> Partial:
    axis = site.node.integer("axis")
    return joined(args, lambda arrays: np.concatenate(arrays, axis))


def _slice(site: OnnxSite, args: list[Partial]) -> Partial | None:
    starts, ends = site.setting("starts", 1), site.setting("ends", 2)
    axes, steps = site.setting("axes", 3), site.setting("steps", 4)
    if starts is None or ends is None:
        return None
    index = [slice(None)] * args[0].values.ndim
    for k, (begin, end) in enumerate(zip(starts, ends, strict=True)):
        index[axes[k] if axes else k] = slice(begin, end, steps[k] if steps else 1)
    return args[0].moved(lambda a: a[tuple(index)])


def _gather(site: OnnxSite, args: list[Partial]) -> Partial | None:
    x, indices = args
    if not indices.complete:
        return None
    at, axis = indices.values.astype(np.int64), site.node.integer("axis")
    return x.moved(lambda a: np.take(a, at, axis))


def _squeeze(site: OnnxSite, args: list[Partial]) -> Partial:
    axes = site.setting("axes", 1)
    return args[0].moved(lambda a: np.squeeze(a, axes))


def _unsqueeze(site: OnnxSite, args: list[Partial]) -> Partial | None:
    axes = site.setting("axes", 1)
    return None if axes is None else args[0].moved(lambda a: np.expand_dims(a, axes))


def _reshape(site: OnnxSite, args: list[Partial]) -> Partial | None:
    if len(args) != 2 or not args[1].complete or site.node.flag("allowzero"):
        return None
    shape = args[0].values.shape
    target = [shape[i] if d == 0 else d for i, d in enumerate(args[1].values.tolist())]
    return args[0].moved(lambda a: np.reshape(a, target))


def _expand(site: OnnxSite, args: list[Partial]) -> Partial | None:
    x, wanted = args
    dims = wanted.values.tolist()
    if not wanted.complete or min(dims, default=1) < 0 or math.prod(dims) > MAX_TRACKED:
        return None
    shape = np.broadcast_shapes(x.values.shape, tuple(dims))
    return None if math.prod(shape) > MAX_TRACKED else x.moved(lambda a: np.broadcast_to(a, shape))


def _equal(site: OnnxSite, args: list[Partial]) -> Partial:
    """Exporters compare sizes with -1, which no size equals; equal names are equal sizes."""
    a, b = args
    result = elementwise(np.equal, args, "bool")
    values, unknown = result.values.copy(), result.unknown.copy()
    names = np.broadcast_arrays(a.unknown, b.unknown)
    numbers = np.broadcast_arrays(a.values, b.values)
    for at in np.ndindex(values.shape):
        (x, y), (p, q) = (n[at] for n in names), (n[at] for n in numbers)
        if (x and y is None and q < 0) or (y and x is None and p < 0):
            values[at], unknown[at] = False, None
        elif x and x == y:
            values[at], unknown[at] = True, None
    return Partial(values, unknown)


def _where(site: OnnxSite, args: list[Partial]) -> Partial:
    condition, yes, no = args
    joint_shape(args)
    values = np.where(condition.values, yes.values, no.values)
    unknown = np.asarray(np.where(condition.values, yes.unknown, no.unknown), object)
    unknown[np.broadcast_to(condition.missing, values.shape)] = ""
    return Partial(values, unknown)


def _constant_of_shape(site: OnnxSite, args: list[Partial]) -> Partial | None:
    dims, fill = args[0], site.node.attrs.get("value")
    sizes = dims.values.tolist()
    if not dims.complete or min(sizes, default=1) < 0 or math.prod(sizes) > MAX_TRACKED:
        return None
    value = np.zeros(1, np.float32) if fill is None else site.builder.decoded(fill, site.name)
    if value.size != 1:
        return None
    return Partial.known(np.full(sizes, value.reshape(()), value.dtype))


def _same(site: OnnxSite, args: list[Partial]) -> Partial:
    return args[0]


EVALUATORS: Mapping[str, Evaluator] = MappingProxyType(
    {
        "Shape": _shape,
        "Size": _size,
        "Add": of_elements(np.add),
        "Sub": of_elements(np.subtract),
        "Mul": of_elements(np.multiply),
        "Div": of_all(lambda site, args: divided(args, Quotient.PLAIN)),
        "Mod": of_all(_modulo),
        "Min": _folded(np.minimum),
        "Max": _folded(np.maximum),
        "Sum": _folded(np.add),
        **{name: of_all(evaluate) for name, evaluate in plain_arithmetic("onnx")},
        "Floor": of_elements(np.floor),
        "Ceil": of_elements(np.ceil),
        "Not": of_elements(np.logical_not),
        "Equal": of_all(_equal),
        "Less": of_elements(np.less, "bool"),
        "LessOrEqual": of_elements(np.less_equal, "bool"),
        "Greater": of_elements(np.greater, "bool"),
        "GreaterOrEqual": of_elements(np.greater_equal, "bool"),
        "And": of_elements(np.logical_and, "bool"),
        "Or": of_elements(np.logical_or, "bool"),
        "ReduceProd": _reduction(np.prod),
        "ReduceSum": _reduction(np.sum),
        "ReduceMax": _reduction(np.max),
        "ReduceMin": _reduction(np.min),
        "Cast": of_all(_cast),
        "Concat": of_all(_concat),
        "Slice": of_all(_slice),
        "Gather": of_all(_gather),
        "Squeeze": of_all(_squeeze),
        "Unsqueeze": of_all(_unsqueeze),
        "Reshape": of_all(_reshape),
        "Range": of_all(lambda site, args: number_range(args)),
        "Expand": of_all(_expand),
        "Where": of_all(_where),
        "ConstantOfShape": of_all(_constant_of_shape),
        "Identity": of_all(_same),
    }
)
