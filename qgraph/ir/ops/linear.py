"""Compute ops: convolutions, matrix products and the bias that follows them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph import kernels
from qgraph.errors import ExactnessError, GraphError
from qgraph.ir.ops.attributes import MarkedAttrs, SlidingAttrs
from qgraph.ir.ops.base import (
    AnyOp,
    OpDef,
    Scale,
    Shapes,
    always,
    as_its_inputs,
    as_its_inputs_in_pools,
    broadcast,
    broadcast_shapes,
    image_sizes,
    one_scale,
)
from qgraph.ir.ops.sliding import convolved, convolved_by_channel
from qgraph.ir.ops.windows import explicit_pads, out_sizes
from qgraph.ir.types import Array, Codes, Fixed, TensorType
from qgraph.ops.attribute_types import Pads, Pair
from qgraph.ops.attributes import A, Attributes, attribute
from qgraph.ops.reach import Ranged, Reach, reach_of_products, reach_of_sum


@dataclass(frozen=True, kw_only=True)
class ConvAttrs(MarkedAttrs, SlidingAttrs):
    """A convolution; padding is 0."""

    dilations: Pair = attribute("positions from one tap to the next", low=1)

    def pads(self, image: Sequence[int], kernel: Pair) -> Pads:
        """Explicit padding for an image and a kernel of these heights and widths."""
        return explicit_pads(image, kernel, self.strides, self.dilations, self.padding)


def _filter(w: TensorType) -> tuple[int, int, int, int]:
    sizes = [size for size in w.shape or () if size is not None]
    if len(sizes) != 4 or w.rank != 4:
        raise GraphError(f"needs a filter of known shape of rank 4, found {w}")
    height, width, inputs, outputs = sizes
    if not height or not width:
        raise GraphError(f"a filter needs a height and a width, found {w}")
    return height, width, inputs, outputs


def _check_dtypes(x: TensorType, w: TensorType) -> None:
    if x.dtype != w.dtype:
        raise GraphError(f"input is {x.dtype}, weights are {w.dtype}")


def infer_conv2d(attrs: ConvAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x, w = inputs
    _check_dtypes(x, w)
    n, h, width, c = image_sizes(x)
    kh, kw, per_group, out = _filter(w)
    fits = c is None or (c > 0 < per_group and c % per_group == 0 and out % (c // per_group) == 0)
    if not fits:
        raise GraphError(f"{c} channels do not fit a filter of {w}")
    oh, ow = out_sizes((h, width), (kh, kw), attrs.strides, attrs.dilations, attrs.padding)
    return TensorType(x.dtype, (n, oh, ow, out))


def infer_depthwise(attrs: ConvAttrs, inputs: Sequence[TensorType]) -> TensorType:
    x, w = inputs
    _check_dtypes(x, w)
    n, h, width, c = image_sizes(x)
    kh, kw, channels, multiplier = _filter(w)
    if c is not None and c != channels:
        raise GraphError(f"{c} channels do not fit a depthwise filter of {w}")
    oh, ow = out_sizes((h, width), (kh, kw), attrs.strides, attrs.dilations, attrs.padding)
    return TensorType(x.dtype, (n, oh, ow, channels * multiplier))


def conv2d(attrs: ConvAttrs, inputs: Sequence[Array]) -> Array:
    x, w = inputs
    strides, dilations, pads = attrs.strides, attrs.dilations, _pads(attrs, x, w)
    if x.dtype == w.dtype == np.float32 and w.shape[2]:
        return kernels.conv2d(x, w, strides, dilations, (*pads[0], *pads[1]))
    return convolved(x, w, strides, dilations, pads)


def depthwise_conv2d(attrs: ConvAttrs, inputs: Sequence[Array]) -> Array:
    x, w = inputs
    strides, dilations, pads = attrs.strides, attrs.dilations, _pads(attrs, x, w)
    if x.dtype == np.float32 and w.shape[3] == 1:
        return kernels.depthwise_conv2d(x, w[..., 0], strides, dilations, (*pads[0], *pads[1]))
    return convolved_by_channel(x, w, strides, dilations, pads)


def _pads(attrs: ConvAttrs, x: Array, w: Array) -> Pads:
    return attrs.pads(x.shape[1:3], w.shape[:2])


def infer_matmul(attrs: Attributes, inputs: Sequence[TensorType]) -> TensorType:
    x, w = inputs
    _check_dtypes(x, w)
    if x.shape is None or w.shape is None or len(x.shape) != 2 or len(w.shape) != 2:
        raise GraphError(f"needs two tensors of rank 2, found {x} and {w}")
    if None not in (x.shape[1], w.shape[0]) and x.shape[1] != w.shape[0]:
        raise GraphError(f"{x} and {w} cannot be multiplied")
    return TensorType(x.dtype, (x.shape[0], w.shape[1]))


def matmul(attrs: Attributes, inputs: Sequence[Array]) -> Array:
    return np.asarray(np.matmul(inputs[0], inputs[1]))


def infer_batch_matmul(attrs: Attributes, inputs: Sequence[TensorType]) -> TensorType:
    a, b = inputs
    _check_dtypes(a, b)
    if a.shape is None or b.shape is None or len(a.shape) < 2 or len(b.shape) < 2:
        raise GraphError(f"needs two tensors of rank 2 or more, found {a} and {b}")
    if None not in (a.shape[-1], b.shape[-2]) and a.shape[-1] != b.shape[-2]:
        raise GraphError(f"{a} and {b} cannot be multiplied")
    batch = broadcast_shapes([a.shape[:-2], b.shape[:-2]])
    return TensorType(a.dtype, (*(batch or ()), a.shape[-2], b.shape[-1]))


def infer_bias_add(attrs: Attributes, inputs: Sequence[TensorType]) -> TensorType:
    x, b = inputs
    if b.shape is None or len(b.shape) != 1:
        raise GraphError(f"the bias must be a vector, found {b}")
    if x.shape == ():
        raise GraphError(f"needs a tensor with channels, found {x}")
    channels = None if x.shape is None else x.shape[-1]
    if None not in (channels, b.shape[0]) and channels != b.shape[0]:
        raise GraphError(f"a bias of {b} does not fit {x}")
    result = broadcast(attrs, inputs)
    return result if x.shape is None else result.with_shape(x.shape)


def product_exponent(x: Fixed, w: Fixed) -> int | Codes:
    total: Array = np.asarray(x.exponent) + np.asarray(w.exponent)
    return int(total) if total.ndim == 0 else total


def _integer_conv2d(attrs: ConvAttrs, inputs: Sequence[Fixed]) -> Fixed:
    codes: Array = conv2d(attrs, [i.codes for i in inputs])
    return Fixed(codes, product_exponent(*inputs))


def _integer_depthwise(attrs: ConvAttrs, inputs: Sequence[Fixed]) -> Fixed:
    codes: Array = depthwise_conv2d(attrs, [i.codes for i in inputs])
    return Fixed(codes, product_exponent(*inputs))


def _integer_matmul(attrs: Attributes, inputs: Sequence[Fixed]) -> Fixed:
    codes: Array = matmul(attrs, [i.codes for i in inputs])
    return Fixed(codes, product_exponent(*inputs))


def _add(attrs: Attributes, inputs: Sequence[Array]) -> Array:
    return inputs[0] + inputs[1]


def _add_in_place(attrs: Attributes, inputs: Sequence[Array]) -> Array:
    x, bias = inputs
    return np.add(x, bias, out=x) if x.dtype == bias.dtype else _add(attrs, inputs)


def _integer_bias_add(attrs: Attributes, inputs: Sequence[Fixed]) -> Fixed:
    return Fixed(inputs[0].codes + inputs[1].codes, one_scale(inputs))


def _known_terms(sizes: Sequence[int | None]) -> int:
    """The number of products in a sum: that of all indices of these sizes."""
    if None in sizes:
        raise ExactnessError(
            "multiplies matrices of unknown size, so its sums have no bound",
            hint="give --input-shape",
        )
    return math.prod(size or 0 for size in sizes)


def _layer(
    name: str,
    attributes: type[A],
    infer: Callable[[A, Sequence[TensorType]], TensorType],
    evaluate: Callable[[A, Sequence[Array]], Array],
    integer: Callable[[A, Sequence[Fixed]], Fixed],
    terms: Callable[[Shapes], Sequence[int | None]],
) -> AnyOp:
    """terms: sizes whose product is the number of products that an element adds up."""

    def reach(attrs: Attributes, inputs: Sequence[Ranged], shapes: Shapes) -> Reach:
        x, weights = inputs
        return reach_of_products(x, weights, _known_terms(terms(shapes)))

    return OpDef(
        name, (2, 2), attributes, infer, evaluate, integer,
        scale=Scale.PRODUCT, reach=reach, nonnegative=as_its_inputs_in_pools, layer=True,
        separate=always, owns=True,
    )  # fmt: skip


def _batch_matmul_reach(attrs: Attributes, inputs: Sequence[Ranged], shapes: Shapes) -> Reach:
    (a, b), (of_a, of_b) = inputs, (shape or (None, None) for shape in shapes)
    return reach_of_products(a, b, _known_terms((of_a[-1] if of_b[-2] is None else of_b[-2],)))


def _matmul_terms(shapes: Shapes) -> Sequence[int | None]:
    x, w = shapes
    return (w[0] if w and w[0] is not None else x[1] if x else None,)


OPS: tuple[AnyOp, ...] = (
    # x [n,h,w,c], w [kh,kw,c/groups,out]
    _layer(
        "conv2d", ConvAttrs, infer_conv2d, conv2d, _integer_conv2d,
        lambda shapes: (shapes[1] or ())[:3],
    ),
    # x [n,h,w,c], w [kh,kw,c,multiplier]
    _layer(
        "depthwise_conv2d", ConvAttrs, infer_depthwise, depthwise_conv2d, _integer_depthwise,
        lambda shapes: (shapes[1] or ())[:2],
    ),
    _layer("matmul", MarkedAttrs, infer_matmul, matmul, _integer_matmul, _matmul_terms),
    # a [..., n, k], b [..., k, m], both activations, as in attention
    OpDef(
        "batch_matmul", (2, 2), MarkedAttrs, infer_batch_matmul, matmul, _integer_matmul,
        scale=Scale.PRODUCT, reach=_batch_matmul_reach, nonnegative=as_its_inputs,
        separate=lambda attrs, shape: len(shape) > 2, owns=True,
    ),
    OpDef(
        "bias_add", (2, 2), MarkedAttrs, infer_bias_add, _add, _integer_bias_add,
        scale=Scale.SHARED, nonnegative=as_its_inputs,
        reach=lambda attrs, inputs, shapes: reach_of_sum(*inputs), separate=always,
        in_place=_add_in_place, owns=True,
    ),
)  # fmt: skip

# Ops whose second input is weights.
COMPUTE = tuple(op.name for op in OPS if op.layer)
