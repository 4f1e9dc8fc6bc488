"""Calibration data: checked against the inputs of the graph, split into chunks, and thinned.

It is read slice by slice, so it may be larger than memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import overload

import numpy as np

from qgraph.errors import CalibrationError, UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.narrow_floats import of_numpy
from qgraph.ir.types import Array
from qgraph.names import entry_name
from qgraph.quant.samples.labels import inputs_among
from qgraph.quant.samples.mistakes import shape_advice
from qgraph.quant.samples.sources import NUMBERS, OnRead, exists, is_entry_point, read_source

# A layer's input and output stay in cache, and products are large enough for the BLAS.
CHUNK = 8
# The largest number of samples that plans are compared on and corrections are computed from. More
# take longer and hardly help. Thresholds of the final network come from all samples.
LEARNING_SAMPLES = 512
LEARNT_NUMBERS = 1 << 20  # if samples are small, as many are used as contain this many numbers
CHECKED_BYTES = 1 << 24  # checked at a time
CALIBRATION = "calibration data"

Data = str | Path | Array | Mapping[str, Array]


def check_source(source: Data | None, what: str = CALIBRATION) -> None:
    """Raise CalibrationError for faults that are visible without a graph: no data, no such file."""
    if source is None:
        raise CalibrationError(
            "calibration data is missing",
            hint="give a few dozen typical inputs: --calibration FILE.npz",
        )
    if isinstance(source, str | Path) and not is_entry_point(source) and not exists(source):
        raise CalibrationError(
            "no such file",
            node=str(source),
            hint=f"{what}: a .npy, a .npz, a directory of .npz files, or module:function",
        )


def load_data(
    source: Data | None,
    graph: Graph,
    limit: int | None = None,
    on_read: OnRead = lambda samples: None,
    what: str = CALIBRATION,
) -> dict[str, Array]:
    """Arrays [samples, ...] by input name, checked against the inputs of `graph`.

    source: a `.npy` (one input), a `.npz` (arrays named like the inputs; any name if there is one
    input and one array), a directory of such `.npz` files, `module:function` that returns a
    `tf.data.Dataset`, an iterable of batches or arrays, or the arrays themselves. Files are mapped
    into memory, not read. on_read: called with the number of samples as batches arrive. what: name
    of the data in errors. Raises CalibrationError.
    """
    if not graph.inputs:
        raise CalibrationError(f"the network has no inputs: {what} cannot be used")
    check_source(source, what)
    assert source is not None
    return check_arrays(_read(source, limit, on_read), graph, what, limit)


def check_limit(limit: int | None) -> None:
    """Raise UsageError for a limit of samples below 1."""
    if limit is not None and limit < 1:
        raise UsageError(f"the limit of samples must be at least 1, not {limit}")


def check_arrays(
    arrays: Mapping[str, Array], graph: Graph, what: str, limit: int | None = None
) -> dict[str, Array]:
    """Arrays [samples, ...] by input name, the first `limit` samples.

    what: name of the data in errors. If the network has one input, its array can have any name.
    Raises CalibrationError, and UsageError for a limit below 1.
    """
    check_limit(limit)
    named = {name: of_numpy(np.asarray(v)) for name, v in _by_input(arrays, graph).items()}
    for name, array in named.items():
        if not np.ndim(array):
            raise CalibrationError(f"{what} for `{name}` is a single number instead of samples")
        named[name] = array[:limit]
    for name in graph.inputs:
        _check(named[name], graph, name, what)
    if len({len(v) for v in named.values()}) > 1:
        raise CalibrationError(
            f"inputs have different sample counts: { {k: len(v) for k, v in named.items()} }",
            hint="give the same number of samples for each input",
        )
    if len({*(sizes := _fixed_batches(graph)).values()}) > 1:
        raise CalibrationError(
            f"inputs take batches of different sizes: {sizes}",
            hint="give all inputs one batch size with --input-shape",
        )
    return named


def converted(graph: Graph, data: Mapping[str, Array]) -> dict[str, Array]:
    """Checked samples in the types of the inputs; users may store theirs in float16 or float64."""
    return {
        name: np.asarray(array).astype(graph.types[name].dtype, copy=False)
        for name, array in data.items()
    }


class LazyChunks(Sequence[Array], ABC):
    """Chunks that are read when they are used."""

    @abstractmethod
    def chunk(self, index: int) -> Array:
        """The chunk of an index from 0 to the length."""

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> list[Array]: ...
    def __getitem__(self, index: int | slice) -> Array | list[Array]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.chunk(index)


class Chunks(LazyChunks):
    """Samples split into chunks, each converted when it is read."""

    def __init__(self, samples: Array, size: int, dtype: str) -> None:
        self.samples, self.size, self.dtype = np.asarray(samples), size, dtype

    def __len__(self) -> int:
        return -(-len(self.samples) // self.size)

    def chunk(self, index: int) -> Array:
        found = self.samples[index * self.size : (index + 1) * self.size]
        return np.require(found, self.dtype, ["C", "A"])


def chunk_inputs(
    graph: Graph, data: Mapping[str, Array], free: int = CHUNK
) -> dict[str, Sequence[Array]]:
    """Split samples into chunks of the graph's batch size, or of `free` if the batch is open."""
    fixed = _fixed_batches(graph)
    usual = max(fixed.values(), default=free)
    return {
        name: Chunks(data[name], fixed.get(name, usual), graph.types[name].dtype)
        for name in graph.inputs
    }


def _fixed_batches(graph: Graph) -> dict[str, int]:
    """The fixed batch sizes of the inputs."""
    sizes = {name: (graph.types[name].shape or (None,))[0] for name in graph.inputs}
    return {name: size for name, size in sizes.items() if size is not None}


def chunk_count(chunks: Mapping[str, Sequence[Array]]) -> int:
    """The number of chunks of each input from `chunk_inputs`; 0 for a network without inputs."""
    return max(map(len, chunks.values()), default=0)


def chunk_at(chunks: Mapping[str, Sequence[Array]], index: int) -> dict[str, Array]:
    """One chunk of each input from `chunk_inputs`."""
    return {name: arrays[index] for name, arrays in chunks.items()}


def batch_of(graph: Graph) -> int:
    """The batch size of the graph; 1 if it is open."""
    fixed = [(graph.types[name].shape or (1,))[0] or 1 for name in graph.inputs]
    return int(np.lcm.reduce(fixed)) if fixed else 1


def at_least(data: Mapping[str, Array], samples: int, numbers: int) -> int:
    """`samples`, or the number of samples with `numbers` numbers in total, if that is larger."""
    each = sum(int(np.prod(array.shape[1:])) for array in data.values())
    return max(samples, numbers // max(each, 1))


def learning_size(data: Mapping[str, Array]) -> int:
    """The largest number of samples that corrections are computed from."""
    return at_least(data, LEARNING_SAMPLES, LEARNT_NUMBERS)


def thinned(
    graph: Graph, data: Mapping[str, Array], most: int | None = None
) -> Mapping[str, Array]:
    """`data` itself, or about `most` of its samples, evenly spaced, in whole batches.

    most: `learning_size` by default.
    """
    step = batch_of(graph)
    most = learning_size(data) if most is None else most
    count, kept = len(next(iter(data.values()), ())) // step, max(most // step, 1)
    if count <= kept:
        return data
    first = np.arange(kept) * count // kept * step
    index = (first[:, None] + np.arange(step)).ravel()
    return {name: np.asarray(array[index]) for name, array in data.items()}


def _read(source: Data, limit: int | None, on_read: OnRead) -> Mapping[str, Array]:
    if isinstance(source, Mapping):
        return {k: np.asarray(v) for k, v in source.items()}
    if isinstance(source, np.ndarray):
        return {"": source}
    return read_source(source, limit, on_read)


def _by_input(arrays: Mapping[str, Array], graph: Graph) -> dict[str, Array]:
    unlabelled = [*arrays] if len(arrays) == 1 else inputs_among(arrays, graph.inputs)
    if len(unlabelled) == 1 and len(graph.inputs) == 1:
        return {graph.inputs[0]: arrays[unlabelled[0]]}
    spelled = {name: name if name in arrays else entry_name(name) for name in graph.inputs}
    missing = [name for name, entry in spelled.items() if entry not in arrays]
    if missing:
        raise CalibrationError(
            f"no array for input `{missing[0]}`: found {sorted(arrays)}",
            hint=f"inputs are {graph.inputs}",
        )
    return {name: arrays[entry] for name, entry in spelled.items()}


def _check(array: Array, graph: Graph, name: str, what: str) -> None:
    expected = graph.types[name]
    shape, batch = expected.shape, expected.shape[0] if expected.shape else None

    def wrong(message: str, hint: str | None = None) -> CalibrationError:
        return CalibrationError(message, node=f"input {name}", hint=hint)

    if shape is None:
        raise wrong(f"its shape is unknown: {expected}", f"give it: --input-shape {name}=...")
    if array.dtype.kind not in NUMBERS:
        raise wrong(
            f"{what} is of dtype {array.dtype}, not numbers", "give numbers, such as float32"
        )
    if array.ndim != len(shape) or any(
        d is not None and d != a for d, a in zip(shape[1:], array.shape[1:], strict=False)
    ):
        raise wrong(
            f"{what} has shape {array.shape}, but the input is {expected}",
            shape_advice(array.shape, shape),
        )
    if not len(array):
        raise wrong("the array has no samples", "give a few dozen typical ones")
    if batch is not None and len(array) % batch:
        raise wrong(
            f"{len(array)} samples are not a multiple of {batch}, the batch size of the network",
            f"give a multiple of {batch} samples, or another batch size with --input-shape",
        )
    some = False
    for start, part in _slices(array):
        with np.errstate(over="ignore"):
            held = part.astype(expected.dtype, copy=False)
        if part.dtype.kind == "f" and not np.isfinite(held).all():
            first, *rest = (int(i) for i in np.argwhere(~np.isfinite(held))[0])
            bad = [start + first, *rest]
            raise wrong(
                f"{what} contains NaN or infinity, first at {bad}", "remove or repair these samples"
            )
        if np.dtype(expected.dtype).kind in "iub" and (held != part).any():
            raise wrong(
                f"{what} is {array.dtype}, and some of its numbers do not fit {expected.dtype}",
                f"give the {expected.dtype} numbers that the network takes",
            )
        some = some or bool(part.any())
    if not some and what == CALIBRATION:
        raise wrong(f"{what} is all zeros", "give typical inputs")


def _slices(array: Array) -> Iterator[tuple[int, Array]]:
    """Slices of an array that may be larger than memory, with their start."""
    step = max(1, CHECKED_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        yield start, array[start : start + step]
