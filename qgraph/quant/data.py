"""Calibration data: read from .npy, .npz or a Python entry point, checked, cut into chunks."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qgraph.errors import CalibrationError
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array

# Small enough that a layer's input and output stay in cache, large enough to feed the BLAS.
CHUNK = 8

Data = str | Path | Array | Mapping[str, Array]


def load_data(source: Data | None, graph: Graph, limit: int | None = None) -> dict[str, Array]:
    """Arrays [samples, ...] by input name, checked against the inputs of `graph`.

    `source` is a `.npy` (one input), a `.npz` (arrays named like the inputs; any name where there
    is one of each), `module:function` that returns a `tf.data.Dataset`, an iterable of batches or
    arrays, or the arrays themselves. Raises CalibrationError.
    """
    if source is None:
        raise CalibrationError(
            "there is no calibration data",
            hint="give --calibration FILE.npz with a few dozen typical inputs",
        )
    named = {k: v[:limit] for k, v in _by_input(_read(source), graph).items()}
    for name in graph.inputs:
        _check(named[name], graph, name)
    if len({len(v) for v in named.values()}) > 1:
        raise CalibrationError(
            f"inputs have different sample counts: { {k: len(v) for k, v in named.items()} }"
        )
    return named


def chunk_inputs(graph: Graph, data: Mapping[str, Array]) -> dict[str, list[Array]]:
    """Cut samples into chunks of the graph's own batch size, or of CHUNK where that is free."""
    chunks = {}
    for name in graph.inputs:
        shape = graph.types[name].shape
        size = shape[0] if shape and shape[0] is not None else CHUNK
        array = np.ascontiguousarray(
            np.asarray(data[name]).astype(graph.types[name].dtype, copy=False)
        )
        chunks[name] = [array[i : i + size] for i in range(0, len(array), size)]
    return chunks


def _read(source: Data) -> dict[str, Array]:
    if isinstance(source, Mapping):
        return {k: np.asarray(v) for k, v in source.items()}
    if isinstance(source, np.ndarray):
        return {"": source}
    text = str(source)
    if ":" in text and not Path(text).exists():
        return _from_entry_point(text)
    try:
        loaded: Any = np.load(text, allow_pickle=False)
        return {k: loaded[k] for k in loaded.files} if hasattr(loaded, "files") else {"": loaded}
    except FileNotFoundError:
        raise CalibrationError("no such file", node=text) from None
    except (OSError, ValueError, EOFError) as error:
        raise CalibrationError(
            f"is not a .npy or .npz of plain arrays: {error}", node=text
        ) from None


def _from_entry_point(text: str) -> dict[str, Array]:
    module, _, function = text.partition(":")
    try:
        made = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise CalibrationError(f"cannot be called: {error}", node=text) from None
    return made if isinstance(made, dict) else _collect(made, text)


def _collect(batches: Iterable[Any], where: str) -> dict[str, Array]:
    """Concatenate batches: arrays, (inputs, labels) tuples, or mappings by input name."""
    parts: dict[str, list[Array]] = {}
    iterator = (
        batches.as_numpy_iterator() if hasattr(batches, "as_numpy_iterator") else iter(batches)
    )
    for batch in iterator:
        inputs = batch[0] if isinstance(batch, tuple) else batch
        for name, value in (inputs if isinstance(inputs, Mapping) else {"": inputs}).items():
            parts.setdefault(name, []).append(np.asarray(value))
    if not parts:
        raise CalibrationError("gives no data", node=where)
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _by_input(arrays: dict[str, Array], graph: Graph) -> dict[str, Array]:
    if len(arrays) == 1 and len(graph.inputs) == 1:
        return {graph.inputs[0]: next(iter(arrays.values()))}
    missing = [name for name in graph.inputs if name not in arrays]
    if missing:
        raise CalibrationError(
            f"no array for input `{missing[0]}`: found {sorted(arrays)}",
            hint=f"inputs are {graph.inputs}",
        )
    return {name: arrays[name] for name in graph.inputs}


def _check(array: Array, graph: Graph, name: str) -> None:
    expected = graph.types[name]
    if array.dtype.kind not in "fiub":
        raise CalibrationError(
            f"calibration data is of dtype {array.dtype}, not numbers", node=name
        )
    shape = expected.shape
    if (
        shape is None
        or array.ndim != len(shape)
        or any(d is not None and d != a for d, a in zip(shape[1:], array.shape[1:], strict=False))
    ):
        raise CalibrationError(
            f"calibration data has shape {array.shape}, the input is {expected}", node=name
        )
    if not len(array):
        raise CalibrationError("there are no samples", node=name)
    batch = shape[0] if shape else None
    if batch is not None and len(array) % batch:
        raise CalibrationError(
            f"{len(array)} samples do not fill batches of {batch}, which the input asks for",
            node=name,
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise CalibrationError("calibration data holds NaN or infinity", node=name)
    if not array.any():
        raise CalibrationError(
            "calibration data is all zeros", node=name, hint="give typical inputs"
        )
