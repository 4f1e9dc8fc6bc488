"""Outputs of exported policies in ONNX Runtime, one observation after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import ModelProto, helper

Rows = Mapping[str, np.ndarray]


def float_outputs(
    model: ModelProto,
    observations: np.ndarray,
    states: Mapping[str, str] | None = None,
    batch: bool = True,
) -> Rows:
    """Outputs by name, [n, ...]; `states` (input -> output) are carried from zeros.

    batch: whether the model takes an axis of samples.
    """
    import onnxruntime as ort

    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    first, *others = model.graph.input
    dtype = helper.tensor_dtype_to_np_dtype(first.type.tensor_type.elem_type)
    carried = {given.name: np.zeros(_sizes(given), np.float32) for given in others}
    names = [output.name for output in session.get_outputs()]
    rows: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for observation in observations:
        given = observation[None] if batch else observation
        feeds = {first.name: given.astype(dtype), **carried}
        found = dict(zip(names, session.run(None, feeds), strict=True))
        for name, array in found.items():
            rows[name].append(array)
        carried |= {state: found[output] for state, output in (states or {}).items()}
    return {name: np.concatenate([a.reshape(1, -1) for a in rows[name]]) for name in names}


def _sizes(value: onnx.ValueInfoProto) -> Sequence[int]:
    """The shape of an input, with 1 for open sizes."""
    dims = value.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") else 1 for d in dims]
