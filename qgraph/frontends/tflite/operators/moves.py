"""Ops that move values: joining, cutting, padding, reshaping, turning, picking."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.errors import GraphError, UnsupportedError
from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.translator import Translator, renamed
from qgraph.frontends.tflite.translation import Translation

MIRRORS = ("REFLECT", "SYMMETRIC")
MASKS: Mapping[str, str] = MappingProxyType(
    {
        "begin_mask": "BeginMask",
        "end_mask": "EndMask",
        "ellipsis_mask": "EllipsisMask",
        "new_axis_mask": "NewAxisMask",
        "shrink_axis_mask": "ShrinkAxisMask",
    }
)


def _concat(t: Translation) -> Ref:
    axis = t.integers(t.option("Axis"), "axis")
    return t.activated(t.emit("ConcatV2", *t.inputs(), axis))


def _reshape(t: Translation) -> Ref:
    given = t.option_vector("NewShape")
    if t.has(1):
        return t.emit("Reshape", t.input(0), t.input(1))
    if given is None:
        raise GraphError("`RESHAPE` has no shape", node=t.name)
    return t.emit("Reshape", t.input(0), t.integers(given, "shape"))


def _squeeze(t: Translation) -> Ref:
    axes = t.option_vector("SqueezeDims") or ()
    return t.emit("Squeeze", t.input(0), squeeze_dims=axes)


def _mirror_pad(t: Translation) -> Ref:
    mode = t.option("Mode")
    if mode not in range(len(MIRRORS)):
        raise GraphError(f"mode {mode} is not in the schema", node=t.name)
    return t.emit("MirrorPad", t.input(0), t.input(1), mode=MIRRORS[mode])


def _strided_slice(t: Translation) -> Ref:
    if t.optional("Offset"):
        raise UnsupportedError("a slice whose end is an offset from its begin", node=t.name)
    masks = {name: t.optional(key) for name, key in MASKS.items()}
    return t.emit("StridedSlice", *(t.input(i) for i in range(4)), **masks)


def _split(t: Translation) -> Ref:
    """Inputs: axis, tensor."""
    count = len(t.operator.outputs)
    return t.emit("Split", t.input(0), t.input(1), num_split=count)


def _gather(t: Translation) -> Ref:
    axis = t.integers(t.optional("Axis"), "axis")
    batch = t.optional("BatchDims")
    attrs = {"batch_dims": batch} if batch else {}
    return t.emit("GatherV2", t.input(0), t.input(1), axis, **attrs)


def _pack(t: Translation) -> Ref:
    t.optional("ValuesCount")
    return t.emit("Pack", *t.inputs(), axis=t.optional("Axis"))


def _unpack(t: Translation) -> Ref:
    t.optional("Num")
    return t.emit("Unpack", t.input(0), axis=t.optional("Axis"), num=len(t.operator.outputs))


def _shape(t: Translation) -> Ref:
    t.optional("OutType")
    return t.emit("Shape", t.input(0), out_type=t.dtype(t.output()))


OPERATORS: Mapping[str, Translator] = MappingProxyType(
    {
        "CONCATENATION": _concat,
        "RESHAPE": _reshape,
        "SQUEEZE": _squeeze,
        "EXPAND_DIMS": renamed("ExpandDims"),
        "TRANSPOSE": renamed("Transpose"),
        "PAD": renamed("Pad"),
        "PADV2": renamed("PadV2"),
        "MIRROR_PAD": _mirror_pad,
        "SLICE": renamed("Slice"),
        "STRIDED_SLICE": _strided_slice,
        "SPLIT": _split,
        "SPLIT_V": renamed("SplitV"),
        "GATHER": _gather,
        "PACK": _pack,
        "UNPACK": _unpack,
        "TILE": renamed("Tile"),
        "BROADCAST_TO": renamed("BroadcastTo"),
        "REVERSE_V2": renamed("ReverseV2"),
        "FILL": renamed("Fill"),
        "ZEROS_LIKE": renamed("ZerosLike"),
        "RANGE": renamed("Range"),
        "SHAPE": _shape,
    }
)
