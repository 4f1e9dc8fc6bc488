"""Ops that only move values: their codes and their scale pass through unchanged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qgraph.errors import GraphError
from qgraph.ir.ops.base import Attrs, Infer, OpDef, moved, same_as_first
from qgraph.ir.types import TensorType


def _infer_concat(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    shapes = [t.shape for t in inputs]
    if len({t.dtype for t in inputs}) > 1:
        raise GraphError(f"inputs have different dtypes: {[t.dtype for t in inputs]}")
    if any(s is None for s in shapes):
        return TensorType(inputs[0].dtype, None)
    known = [s for s in shapes if s is not None]
    rank = len(known[0])
    axis = attrs["axis"] % rank
    result: list[int | None] = []
    for i in range(rank):
        dims = [s[i] if len(s) == rank else -1 for s in known]
        if i == axis:
            result.append(None if None in dims else sum(d or 0 for d in dims))
            continue
        fixed = {d for d in dims if d is not None}
        if len(fixed) > 1:
            raise GraphError(f"shapes cannot be joined along axis {axis}: {known}")
        result.append(fixed.pop() if fixed else None)
    return TensorType(inputs[0].dtype, tuple(result))


def _concat(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    return np.concatenate(list(inputs), axis=attrs["axis"])


def _infer_pad(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return x
    pads = attrs["paddings"]
    if len(pads) != len(x.shape):
        raise GraphError(f"paddings {pads} do not fit {x}")
    dims = (None if d is None else d + a + b for d, (a, b) in zip(x.shape, pads, strict=True))
    return x.with_shape(tuple(dims))


def _pad(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    """`mode` constant (with `value`, 0 by default), reflect or symmetric."""
    mode = attrs.get("mode", "constant")
    if mode == "constant":
        return np.pad(inputs[0], attrs["paddings"], constant_values=attrs.get("value", 0))
    return np.pad(inputs[0], attrs["paddings"], mode=mode)


def _infer_reshape(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x, target = inputs[0], tuple(attrs["shape"])
    if x.shape is not None and None not in x.shape:
        size = math.prod(d or 0 for d in x.shape)
        rest = math.prod(d for d in target if d != -1)
        if -1 in target:
            if rest == 0 or size % rest:
                raise GraphError(f"{x} cannot be reshaped to {target}")
            target = tuple(size // rest if d == -1 else d for d in target)
        elif rest != size:
            raise GraphError(f"{x} cannot be reshaped to {target}")
    return TensorType(x.dtype, tuple(None if d == -1 else int(d) for d in target))


def _reshape(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    return np.reshape(inputs[0], attrs["shape"])


def _infer_transpose(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x, perm = inputs[0], attrs["perm"]
    if x.shape is None:
        return x
    if sorted(perm) != list(range(len(x.shape))):
        raise GraphError(f"perm {perm} does not fit {x}")
    return x.with_shape(tuple(x.shape[i] for i in perm))


def _infer_slice(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return x
    if len(attrs["begin"]) != len(x.shape):
        raise GraphError(f"slice of rank {len(attrs['begin'])} does not fit {x}")
    dims: list[int | None] = []
    for d, part in zip(x.shape, _slices(attrs), strict=True):
        dims.append(d if d is None and part == slice(None, None, 1) else None)
        if d is not None:
            dims[-1] = len(range(*part.indices(d)))
    return x.with_shape(tuple(dims))


def _slices(attrs: Attrs) -> tuple[slice, ...]:
    """Python slices, one a dimension; None for `from the start` and `to the end`."""
    return tuple(
        slice(b, e, s)
        for b, e, s in zip(attrs["begin"], attrs["end"], attrs["strides"], strict=True)
    )


def _slice(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    return inputs[0][_slices(attrs)]


def _infer_squeeze(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return x
    axes = {a % len(x.shape) for a in attrs["axes"]}
    if any(x.shape[a] not in (1, None) for a in axes):
        raise GraphError(f"axes {sorted(axes)} of {x} are not all 1")
    return x.with_shape(tuple(d for i, d in enumerate(x.shape) if i not in axes))


def _infer_expand_dims(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None:
        return x
    axis = attrs["axis"] % (len(x.shape) + 1)
    return x.with_shape((*x.shape[:axis], 1, *x.shape[axis:]))


def _infer_resize(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None or len(x.shape) != 4:
        raise GraphError(f"needs an NHWC tensor of rank 4, found {x}")
    return x.with_shape((x.shape[0], *attrs["size"], x.shape[3]))


def nearest(size: int, out: int, align_corners: bool, half_pixel: bool) -> Any:
    at = np.arange(out)
    if align_corners and out > 1:
        index = np.floor(at * ((size - 1) / (out - 1)) + 0.5)
    elif half_pixel:
        index = np.floor((at + 0.5) * (size / out))
    else:
        index = np.floor(at * (size / out))
    return np.minimum(index.astype(np.int64), size - 1)


def _resize_nearest(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    x, (h, w) = inputs[0], attrs["size"]
    flags = (attrs.get("align_corners", False), attrs.get("half_pixel", False))
    return x[:, nearest(x.shape[1], h, *flags)][:, :, nearest(x.shape[2], w, *flags)]


def _check_divides(x: TensorType, dim: int | None, parts: int) -> None:
    if dim is not None and dim % parts:
        raise GraphError(f"{dim} in {x} does not divide into {parts}")


def _infer_block(up: bool) -> Infer:
    def infer(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
        x, b = inputs[0], attrs["block"]
        if x.shape is None or len(x.shape) != 4:
            raise GraphError(f"needs an NHWC tensor of rank 4, found {x}")
        n, h, w, c = x.shape
        if up:
            _check_divides(x, c, b * b)
            dims = (None if h is None else h * b, None if w is None else w * b)
            return x.with_shape((n, *dims, None if c is None else c // (b * b)))
        _check_divides(x, h, b)
        _check_divides(x, w, b)
        dims = (None if h is None else h // b, None if w is None else w // b)
        return x.with_shape((n, *dims, None if c is None else c * b * b))

    return infer


def _space_to_depth(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    x, b = inputs[0], attrs["block"]
    n, h, w, c = x.shape
    y = x.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(n, h // b, w // b, b * b * c)


def _depth_to_space(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    x, b = inputs[0], attrs["block"]
    n, h, w, c = x.shape
    y = x.reshape(n, h, w, b, b, c // (b * b)).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(n, h * b, w * b, c // (b * b))


def _infer_space_to_batch(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None or len(x.shape) != 4:
        raise GraphError(f"needs an NHWC tensor of rank 4, found {x}")
    (bh, bw), ((t, b), (left, right)) = attrs["block"], attrs["paddings"]
    n, h, w, c = x.shape
    _check_divides(x, None if h is None else h + t + b, bh)
    _check_divides(x, None if w is None else w + left + right, bw)
    return x.with_shape(
        (
            None if n is None else n * bh * bw,
            None if h is None else (h + t + b) // bh,
            None if w is None else (w + left + right) // bw,
            c,
        )
    )


def _space_to_batch(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    (bh, bw) = attrs["block"]
    x = np.pad(inputs[0], ((0, 0), *attrs["paddings"], (0, 0)))
    n, h, w, c = x.shape
    y = x.reshape(n, h // bh, bh, w // bw, bw, c).transpose(2, 4, 0, 1, 3, 5)
    return y.reshape(n * bh * bw, h // bh, w // bw, c)


def _infer_batch_to_space(attrs: Attrs, inputs: Sequence[TensorType]) -> TensorType:
    x = inputs[0]
    if x.shape is None or len(x.shape) != 4:
        raise GraphError(f"needs an NHWC tensor of rank 4, found {x}")
    (bh, bw), ((t, b), (left, right)) = attrs["block"], attrs["crops"]
    n, h, w, c = x.shape
    _check_divides(x, n, bh * bw)
    return x.with_shape(
        (
            None if n is None else n // (bh * bw),
            None if h is None else h * bh - t - b,
            None if w is None else w * bw - left - right,
            c,
        )
    )


def _batch_to_space(attrs: Attrs, inputs: Sequence[Any]) -> Any:
    (bh, bw), ((t, b), (left, right)) = attrs["block"], attrs["crops"]
    x = inputs[0]
    n, h, w, c = x.shape
    y = x.reshape(bh, bw, n // (bh * bw), h, w, c).transpose(2, 3, 0, 4, 1, 5)
    y = y.reshape(n // (bh * bw), h * bh, w * bw, c)
    return y[:, t : h * bh - b, left : w * bw - right]


def _mover(name: str, infer: Infer, evaluate: Callable[..., Any], *attrs: str) -> OpDef:
    return OpDef(name, (1, 1), infer, evaluate, moved(evaluate), attrs, moves=True)


OPS = (
    _mover("identity", same_as_first, lambda attrs, inputs: inputs[0]),
    OpDef(
        "concat",
        (1, None),
        _infer_concat,
        _concat,
        moved(_concat),
        ("axis",),
        moves=True,
        same_scale=True,
    ),
    _mover("pad", _infer_pad, _pad, "paddings"),
    _mover("reshape", _infer_reshape, _reshape, "shape"),
    _mover("transpose", _infer_transpose, lambda a, i: np.transpose(i[0], a["perm"]), "perm"),
    _mover("slice", _infer_slice, _slice, "begin", "end", "strides"),
    _mover("squeeze", _infer_squeeze, lambda a, i: np.squeeze(i[0], tuple(a["axes"])), "axes"),
    _mover("expand_dims", _infer_expand_dims, lambda a, i: np.expand_dims(i[0], a["axis"]), "axis"),
    _mover("resize_nearest", _infer_resize, _resize_nearest, "size"),
    _mover("space_to_depth", _infer_block(up=False), _space_to_depth, "block"),
    _mover("depth_to_space", _infer_block(up=True), _depth_to_space, "block"),
    _mover("space_to_batch", _infer_space_to_batch, _space_to_batch, "block", "paddings"),
    _mover("batch_to_space", _infer_batch_to_space, _batch_to_space, "block", "crops"),
)
