"""Arrays that may not fit into memory: above a limit they are stored in temporary files.

The files have no name: the system removes them when the process closes them or ends, even by a
signal. `TMPDIR` selects the disk.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from qgraph.errors import CalibrationError
from qgraph.ir.types import Array

SHARE_OF_FREE = 0.5
ALIGNMENT = 64
EMPTY: Array = np.empty(0)


def memory_bound() -> int:
    """Default limit in bytes for live values: half of the free memory."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(s.split()[1]) << 10 for s in lines if s.startswith("MemAvailable:"))
    with suppress(OSError, ValueError):  # the limit of a container; "max" if there is none
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / f"memory.{k}").read_text() for k in ("max", "current"))
        free = min(free, max(int(limit) - int(used), 0))
    return int(SHARE_OF_FREE * free)


class Scratch:
    """A temporary file of bytes; arrays are read from it without loading them into memory."""

    def __init__(self) -> None:
        with _as_calibration_error():
            # It stays open because arrays are mapped from it.
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self.size = 0

    def reserve(self, size: int) -> None:
        self._file.truncate(size)
        self.size = size

    def write(self, content: Array | bytes, offset: int) -> None:
        """Write the bytes of an array or buffer. Raises CalibrationError."""
        held = content if isinstance(content, bytes) else content.data
        rest = memoryview(held).cast("B")
        with _as_calibration_error():
            while len(rest):
                written = os.pwrite(self._file.fileno(), rest, offset)
                rest, offset = rest[written:], offset + written
        self.size = max(self.size, offset)

    def mapped(self) -> mmap.mmap:
        return mmap.mmap(self._file.fileno(), self.size, prot=mmap.PROT_READ)

    def array(
        self, dtype: npt.DTypeLike, shape: Sequence[int], order: Literal["C", "F"] = "C"
    ) -> Array:
        """The whole file as one read-only array."""
        if not prod(shape):
            return np.zeros(shape, dtype)
        return np.frombuffer(self.mapped(), dtype, prod(shape)).reshape(shape, order=order)


@contextmanager
def _as_calibration_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CalibrationError(
            f"a temporary file cannot be written: {error.strerror or error}",
            node=str(tempfile.tempdir or os.environ.get("TMPDIR") or "temporary files"),
            hint="free some space, or set another folder: TMPDIR=/path",
        ) from error


class ChunkStore:
    """Values by name, each as the arrays of `count` chunks, in memory or in files.

    Up to `memory` bytes are kept in memory; further arrays are stored in files. An array is
    returned with the same bits and layout in both cases. `put` is thread-safe.
    """

    def __init__(self, count: int, memory: int | None = None) -> None:
        self.count = count
        self.memory = memory_bound() if memory is None else memory
        self.spilled = 0
        self._bytes_in_memory = 0
        self._lock = threading.Lock()
        self._chunks: dict[str, Sequence[Array]] = {}
        self._sizes: dict[str, int] = {}
        self._slots: dict[str, _Slots] = {}

    def add(self, value: str, chunks: Sequence[Array]) -> None:
        """Add chunks that are stored elsewhere."""
        self._chunks[value] = chunks

    def put(self, value: str, index: int, array: Array) -> None:
        # With one layout in memory and in files, because the order of a sum may depend on it.
        array = np.asarray(array, order="C")
        with self._lock:
            chunks = self._chunks.setdefault(value, [EMPTY] * self.count)
            assert isinstance(chunks, list), value
            fits = self._bytes_in_memory + array.nbytes <= self.memory or not array.nbytes
            if fits:
                self._bytes_in_memory += array.nbytes
                self._sizes[value] = self._sizes.get(value, 0) + array.nbytes
            else:
                self.spilled += array.nbytes
                if value not in self._slots or self._slots[value].size < array.nbytes:
                    self._slots[value] = _Slots(array.nbytes, self.count)
                slots = self._slots[value]
        chunks[index] = array if fits else slots.held(index, array)

    def __getitem__(self, value: str) -> Sequence[Array]:
        return self._chunks[value]

    def __contains__(self, value: str) -> bool:
        return value in self._chunks

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._chunks))

    def __delitem__(self, value: str) -> None:
        del self._chunks[value]
        self._bytes_in_memory -= self._sizes.pop(value, 0)
        self._slots.pop(value, None)


class _Slots:
    """A file with space for `count` arrays of at most `size` bytes."""

    def __init__(self, size: int, count: int) -> None:
        self.size = -(-size // ALIGNMENT) * ALIGNMENT
        self._scratch = Scratch()
        self._scratch.reserve(self.size * count)
        self._map = self._scratch.mapped()

    def held(self, index: int, array: Array) -> Array:
        offset = index * self.size
        self._scratch.write(array, offset)
        flat = np.frombuffer(self._map, array.dtype, array.size, offset)
        return flat.reshape(array.shape)
