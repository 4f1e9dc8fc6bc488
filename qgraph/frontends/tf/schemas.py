"""Attributes in TensorFlow's op definitions: defaults, and which never change a number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from qgraph.foreign import Proto

# By op: attributes that are notes, checks of results, or functions that importers read by name.
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("Conv2D", "DepthwiseConv2dNative"), ("use_cudnn_on_gpu",)),
        **dict.fromkeys(("_FusedConv2D", "_FusedDepthwiseConv2dNative"), ("use_cudnn_on_gpu",)),
        "MatMul": ("grad_a", "grad_b"),
        **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), ("grad_x", "grad_y")),
        "ReadVariableOp": ("dtype",),
        **dict.fromkeys(("CheckNumerics", "CheckNumericsV2", "PreventGradient"), ("message",)),
        **dict.fromkeys(("EnsureShape", "PlaceholderWithDefault"), ("shape",)),
        "Print": ("message", "first_n", "summarize"),
        "Gather": ("validate_indices",),
        **dict.fromkeys(
            ("While", "StatelessWhile"), ("cond", "body", "output_shapes", "parallel_iterations")
        ),
        **dict.fromkeys(("TensorListReserve", "TensorListFromTensor"), ("element_dtype",)),
        "TensorListGetItem": ("element_dtype",),
        "TensorListSetItem": ("element_dtype", "resize_if_index_out_of_bounds"),
        "TensorListStack": ("element_dtype", "num_elements"),
        "FusedBatchNorm": ("exponential_avg_factor",),  # of training
        "FusedBatchNormV2": ("exponential_avg_factor",),
        "FusedBatchNormV3": ("exponential_avg_factor",),
    }
)


def no_effect(op: str, key: str, value: Proto) -> bool:
    """Whether attribute `key` of an op holds its default, or can never change a number."""
    if key.startswith("_") or key in WITHOUT_EFFECT.get(op, ()):
        return True
    if value.WhichOneof("value") is None:  # left by scripts that access it through protobuf
        return True
    given, defaults = _definition(op)
    return key in given or (key in defaults and bool(defaults[key] == value))


@cache
def _definition(op: str) -> tuple[frozenset[str], Mapping[str, Proto]]:
    """The attributes that an op's inputs and outputs imply, and the defaults of the others."""
    from tensorflow.python.framework import op_def_registry

    found = op_def_registry.get(op)
    if found is None:
        return frozenset(), {}
    given = {k for a in found.input_arg for k in (a.type_attr, a.number_attr, a.type_list_attr)}
    given.update(a.number_attr for a in found.output_arg)
    defaults = {a.name: a.default_value for a in found.attr if a.HasField("default_value")}
    return frozenset(given), defaults


def implied_attributes(op: str) -> frozenset[str]:
    """Attributes implied by the op's inputs and outputs: their types and counts."""
    return _definition(op)[0]
