"""Written models, executed: by ONNX Runtime with graph optimisations on and off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from qgraph.backends.onnx.builder import metadata_of
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.ir.types import Array, Codes

NHWC = (0, 2, 3, 1)


def session(model: onnx.ModelProto | Path, optimised: bool) -> Any:
    """An ONNX Runtime session on the CPU. Raises UnsupportedError where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        raise UnsupportedError(
            "ONNX Runtime is not installed", hint="pip install 'qgraph[onnx]'"
        ) from None
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    )
    options.log_severity_level = 3
    # For CPUs without VNNI, whose fastest products of uint8 and int8 saturate at 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def with_outputs(model: onnx.ModelProto, values: Iterable[str]) -> onnx.ModelProto:
    """A copy that gives these values, too. Their types are left to whoever runs it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    there = {o.name for o in copy.graph.output}
    copy.graph.output.extend(
        helper.make_empty_tensor_value_info(v) for v in dict.fromkeys(values) if v not in there
    )
    return copy


def with_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """A copy for so many samples, every shape known; the model has one sample in front."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    constants = {i.name for i in graph.initializer}
    custom = {n.output[0] for n in graph.node if n.domain and n.input[0] not in constants}
    kept = {n.output[0] for n in graph.node if n.domain}
    values = [v for v in graph.value_info if v.name in kept]
    del graph.value_info[:]
    graph.value_info.extend(values)
    for value in (*graph.input, *graph.output, *(v for v in graph.value_info if v.name in custom)):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    return onnx.shape_inference.infer_shapes(copy, strict_mode=True)


def same(name: str, optimised: Array, plain: Array) -> None:
    """Raise ExactnessError unless both runs gave the same."""
    if not np.array_equal(optimised, plain):
        wrong = int(np.count_nonzero(optimised != plain))
        raise ExactnessError(
            f"ONNX Runtime gives other codes with graph optimisations on: {wrong} of {plain.size}",
            node=name,
        )


def shown(model: onnx.ModelProto, values: Mapping[str, Array]) -> dict[str, Array]:
    """Inner tensors by name, NHWC, from ONNX values by name."""
    tensors = metadata_of(model)["tensors"]
    return {
        name: values[t["value"]].transpose(NHWC) if t["layout"] == "NCHW" else values[t["value"]]
        for name, t in tensors.items()
        if t["value"] in values
    }


def as_codes(name: str, values: Array, exponent: Any) -> Codes:
    """Codes of float values. Raises ExactnessError where one is not on the grid."""
    codes = np.ldexp(values.astype(np.float64), np.asarray(exponent))
    whole: Codes = codes.astype(np.int64)
    if not np.array_equal(whole, codes):
        raise ExactnessError("its values are not on its grid", node=name)
    return whole


def values_of(codes: Array, exponent: Any) -> Array:
    """What codes are worth, in float32."""
    values: Array = np.ldexp(codes.astype(np.float64), -np.asarray(exponent)).astype(np.float32)
    return values
