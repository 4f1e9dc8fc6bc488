"""Sources of calibration data: files, and functions of Python modules.

Arrays in files are mapped into memory and only loaded where they are used. Compressed data and
batches are written to a temporary file first, so they may be larger than memory.
"""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np

from qgraph.archives import Archive, npy_header
from qgraph.downloads import failed_download
from qgraph.errors import CalibrationError, reason_of
from qgraph.foreign import DatasetLike
from qgraph.ir.narrow_floats import of_numpy
from qgraph.ir.types import Array
from qgraph.quant.samples.labels import LABELS
from qgraph.quant.samples.mistakes import PREPARE, holds_images, is_image
from qgraph.quant.samples.spill import Scratch

BLOCK = 1 << 22
NUMBERS = "fiub"  # kinds of dtype

OnRead = Callable[[int], None]


def exists(path: str | Path) -> bool:
    """Whether a file or directory exists; False for a path that is too long or not accessible."""
    try:
        return Path(path).exists()
    except OSError:
        return False


def is_entry_point(source: str | Path) -> bool:
    return ":" in str(source) and not exists(source)


def read_source(
    source: str | Path,
    limit: int | None = None,
    on_read: OnRead = lambda samples: None,
    *,
    labels: bool = False,
) -> Mapping[str, Array]:
    """Arrays by name of a `.npy`, a `.npz`, a directory of `.npz` files, or `module:function`.

    labels: keep the labels of a dataset of pairs, as the array `labels`. Raises CalibrationError.
    """
    if is_entry_point(source):
        return call_entry_point(str(source), limit, on_read, labels=labels)
    path = Path(source)
    return _read_directory(path, limit, on_read) if path.is_dir() else read_file(path)


def _read_directory(path: Path, limit: int | None, on_read: OnRead) -> Mapping[str, Array]:
    """The arrays of all `.npz` files, sorted by name and concatenated by array name."""
    files = sorted(path.glob("*.npz"))
    if not files:
        images = holds_images(path)
        raise CalibrationError(
            f"a directory {'of images, ' if images else ''}without .npz files",
            node=str(path),
            hint=PREPARE if images else "each has an array for each input, and may have labels",
        )
    names = {name for name, array in read_file(files[0]).items() if array.ndim}
    if not names:
        raise CalibrationError(
            "its arrays are single numbers instead of samples", node=str(files[0])
        )
    parts = (_file_of_several(file, names, files[0]) for file in files)
    return _collect(parts, str(path), limit, on_read)


def _file_of_several(path: Path, names: set[str], first: Path) -> Mapping[str, Array]:
    """The arrays of a file, which must have the names of the first one and equal sample counts."""
    found = {name: array for name, array in read_file(path).items() if array.ndim}
    if found.keys() != names:
        raise CalibrationError(
            f"arrays {sorted(found)}, but `{first.name}` has {sorted(names)}", node=str(path)
        )
    counts = {name: len(array) for name, array in found.items()}
    if len({*counts.values()}) > 1:
        raise CalibrationError(f"arrays have different sample counts: {counts}", node=str(path))
    return found


def read_file(path: Path) -> Mapping[str, Array]:
    """Arrays of a `.npy` (its name is empty) or `.npz`, each opened when it is used."""
    with _as_file_error(path):
        if not zipfile.is_zipfile(path):
            return {"": _mapped(path)}
        found = _Arrays(Archive(path))
        if not found:
            raise ValueError("no arrays")
        return found


def _mapped(path: Path) -> Array:
    with path.open("rb") as stream:
        shape, dtype, order = npy_header(stream, path.stat().st_size)
        if not prod(shape):
            return np.zeros(shape, dtype)
        return np.memmap(path, dtype, "r", stream.tell(), shape, order)


class _Arrays(Mapping[str, Array]):
    """The arrays of a `.npz`."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.members = {name.removesuffix(".npy"): name for name in archive.members}

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, name: object) -> bool:
        return name in self.members

    def __getitem__(self, name: str) -> Array:
        member, path = self.members[name], Path(self.archive.where)
        info = self.archive.members[member]
        with _as_file_error(path), self.archive.opened(member) as stream:
            shape, dtype, order = npy_header(stream, info.file_size)
            if not prod(shape):
                return np.zeros(shape, dtype)
            if info.compress_type == zipfile.ZIP_STORED:
                offset = self.archive.start_of(member) + stream.tell()
                return np.memmap(path, dtype, "r", offset, shape, order)
            scratch = Scratch()
            while block := stream.read(BLOCK):
                scratch.write(block, scratch.size)
            return scratch.array(dtype, shape, order)


@contextmanager
def _as_file_error(path: Path) -> Iterator[None]:
    try:
        yield
    except CalibrationError:
        raise
    except OSError as error:
        raise CalibrationError(
            f"cannot be read: {error.strerror or error}", node=str(path)
        ) from None
    except Exception:  # the parsers for zip, deflate and npy may raise anything for a wrong file
        if (failed := failed_download(path)) is not None:
            raise CalibrationError(failed.name, node=str(path), hint=failed.advice) from None
        raise CalibrationError(
            "not a .npy or .npz of plain arrays",
            node=str(path),
            hint=PREPARE
            if is_image(path)
            else "write one with numpy.savez(FILE, NAME_OF_INPUT=array)",
        ) from None


# -- functions ------------------------------------------------------------------------------


def call_entry_point(
    text: str, limit: int | None, on_read: OnRead, *, labels: bool = False
) -> Mapping[str, Array]:
    """Call `module:function` and return its arrays; calls `on_read(samples)` after each batch."""
    module, _, function = text.partition(":")
    try:
        made = getattr(importlib.import_module(module), function)()
        if isinstance(made, Mapping):
            return {k: np.asarray(v) for k, v in made.items()}
        if isinstance(made, np.ndarray):
            return {"": made}
        return _collect(made, text, limit, on_read, labels=labels)
    except CalibrationError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise CalibrationError(
            f"failed: {reason_of(error)}",
            node=text,
            hint="it must return a tf.data.Dataset, batches, or arrays; --debug shows where",
        ) from error


def _collect(
    batches: Iterable[DatasetLike],
    where: str,
    limit: int | None,
    on_read: OnRead,
    *,
    labels: bool = False,
) -> dict[str, Array]:
    """Join batches: arrays, (inputs, labels) tuples, or mappings by input name.

    labels: those of tuples become the array `labels`.

    It stops at `limit` samples, because a dataset may repeat without end.
    """
    parts: dict[str, _Joined] = {}
    iterator = (
        batches.as_numpy_iterator() if hasattr(batches, "as_numpy_iterator") else iter(batches)
    )
    for batch in iterator:
        inputs = batch[0] if isinstance(batch, tuple) else batch
        named = dict(inputs) if isinstance(inputs, Mapping) else {"": inputs}
        if labels and isinstance(batch, tuple) and len(batch) == 2:
            named.setdefault(LABELS[0], batch[1])
        for name, value in named.items():
            parts.setdefault(name, _Joined(where)).add(value)
        samples = next(iter(parts.values())).samples
        on_read(samples)
        if limit is not None and samples >= limit:
            break
    if not parts:
        raise CalibrationError("it returned no data", node=where)
    return {name: part.array() for name, part in parts.items()}


class _Joined:
    """Batches of one input, concatenated in a temporary file."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.samples = 0
        self.first: Array | None = None
        self.scratch = Scratch()

    def add(self, batch: DatasetLike) -> None:
        array = of_numpy(np.atleast_1d(np.asarray(batch, order="C")))
        if self.first is None:
            self.first = array[:1]
        kind = self.first.dtype
        if array.dtype.kind not in NUMBERS:
            raise CalibrationError(
                f"the data has dtype {array.dtype}, which is not numeric", node=self.where
            )
        if array.shape[1:] != self.first.shape[1:] or not np.can_cast(array.dtype, kind):
            raise CalibrationError(
                f"batches differ: {array.dtype} {list(array.shape[1:])} "
                f"after {kind} {list(self.first.shape[1:])}",
                node=self.where,
                hint="every batch must have samples of one shape and dtype",
            )
        self.scratch.write(array.astype(kind, copy=False), self.scratch.size)
        self.samples += len(array)

    def array(self) -> Array:
        assert self.first is not None
        return self.scratch.array(self.first.dtype, (self.samples, *self.first.shape[1:]))
