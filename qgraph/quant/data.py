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


def check_source(source: Data | None) -> None:
    """Raise CalibrationError for what can be told without the graph: no data, no such file."""
    if source is None:
        raise CalibrationError(
            "there is no calibration data",
            hint="give a few dozen typical inputs: --calibration FILE.npz",
        )
    if isinstance(source, str | Path) and not _is_entry_point(source) and not Path(source).exists():
        raise CalibrationError(
            "no such file",
            node=str(source),
            hint="calibration data is a .npy, a .npz, or module:function",
        )


def load_data(source: Data | None, graph: Graph, limit: int | None = None) -> dict[str, Array]:
    """Arrays [samples, ...] by input name, checked against the inputs of `graph`.

    `source` is a `.npy` (one input), a `.npz` (arrays named like the inputs; any name where there
    is one of each), `module:function` that returns a `tf.data.Dataset`, an iterable of batches or
    arrays, or the arrays themselves. Raises CalibrationError.
    """
    if not graph.inputs:
        raise CalibrationError("the network has no inputs: there is nothing to calibrate")
    check_source(source)
    assert source is not None
    named = {k: v[:limit] for k, v in _by_input(_read(source, limit), graph).items()}
    for name in graph.inputs:
        _check(named[name], graph, name)
    if len({len(v) for v in named.values()}) > 1:
        raise CalibrationError(
            f"inputs have different sample counts: { {k: len(v) for k, v in named.items()} }",
            hint="give as many samples of each",
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


def _read(source: Data, limit: int | None) -> dict[str, Array]:
    if isinstance(source, Mapping):
        return {k: np.asarray(v) for k, v in source.items()}
    if isinstance(source, np.ndarray):
        return {"": source}
    if _is_entry_point(source):
        return _from_entry_point(str(source), limit)
    try:
        loaded: Any = np.load(source, allow_pickle=False)
        arrays = {k: loaded[k] for k in loaded.files} if hasattr(loaded, "files") else {"": loaded}
        if not arrays:
            raise ValueError("no arrays")
        return arrays
    except OSError as error:
        raise CalibrationError(
            f"cannot be read: {error.strerror or error}", node=str(source)
        ) from None
    except Exception:  # whatever a foreign file makes of the parsers for zip, deflate and npy
        raise CalibrationError(
            "is not a .npy or .npz of plain arrays",
            node=str(source),
            hint="write one with numpy.savez(FILE, NAME_OF_INPUT=array)",
        ) from None


def _is_entry_point(source: str | Path) -> bool:
    return ":" in str(source) and not Path(source).exists()


def _from_entry_point(text: str, limit: int | None) -> dict[str, Array]:
    module, _, function = text.partition(":")
    try:
        made = getattr(importlib.import_module(module), function)()
        if isinstance(made, Mapping):
            return {k: np.asarray(v) for k, v in made.items()}
        if isinstance(made, np.ndarray):
            return {"": made}
        return _collect(made, text, limit)
    except CalibrationError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise CalibrationError(
            f"{type(error).__name__}: {error}",
            node=text,
            hint="it must return a tf.data.Dataset, batches, or arrays; --debug shows where",
        ) from error


def _collect(batches: Iterable[Any], where: str, limit: int | None) -> dict[str, Array]:
    """Concatenate batches: arrays, (inputs, labels) tuples, or mappings by input name.

    Stops once there are `limit` samples: a dataset may repeat without end.
    """
    parts: dict[str, list[Array]] = {}
    samples = 0
    iterator = (
        batches.as_numpy_iterator() if hasattr(batches, "as_numpy_iterator") else iter(batches)
    )
    for batch in iterator:
        inputs = batch[0] if isinstance(batch, tuple) else batch
        named = inputs if isinstance(inputs, Mapping) else {"": inputs}
        for name, value in named.items():
            parts.setdefault(name, []).append(np.asarray(value))
        samples += len(next(iter(parts.values()))[-1])
        if limit is not None and samples >= limit:
            break
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
    shape, batch = expected.shape, expected.shape[0] if expected.shape else None

    def wrong(message: str, hint: str | None = None) -> CalibrationError:
        return CalibrationError(message, node=f"input {name}", hint=hint)

    if shape is None:
        raise wrong(f"its shape is not known: {expected}", f"give it: --input-shape {name}=...")
    if array.dtype.kind not in "fiub":
        raise wrong(f"calibration data is of dtype {array.dtype}, not numbers")
    if array.ndim != len(shape) or any(
        d is not None and d != a for d, a in zip(shape[1:], array.shape[1:], strict=False)
    ):
        dims = ", ".join("any" if d is None else str(d) for d in shape[1:])
        raise wrong(
            f"calibration data has shape {array.shape}, the input is {expected}",
            f"give an array of shape (samples, {dims})",
        )
    if not len(array):
        raise wrong("there are no samples", "a few dozen are enough")
    if batch is not None and len(array) % batch:
        raise wrong(
            f"{len(array)} samples do not fill batches of {batch}, which the input asks for",
            "give a multiple of it, or another --input-shape",
        )
    with np.errstate(over="ignore"):
        held = array.astype(expected.dtype, copy=False)
    if array.dtype.kind == "f" and not np.isfinite(held).all():
        bad = [int(i) for i in np.argwhere(~np.isfinite(held))[0]]
        raise wrong(f"calibration data holds NaN or infinity, first at {bad}", "leave it out")
    if not array.any():
        raise wrong("calibration data is all zeros", "give typical inputs")
    if np.dtype(expected.dtype).kind in "iub" and (held != array).any():
        raise wrong(
            f"calibration data is {array.dtype}, and not all of it fits {expected.dtype}",
            f"give the {expected.dtype} numbers that the network is run on",
        )
