"""Memory that processes share; none is left after a crash.

A region is a file without a place in any folder: the system frees it with the last process that
has it open. Other processes of the machine open it by its name, a path through the process that
created it, which is valid while that process lives.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qgraph import kernels
from qgraph.errors import LoadError, OutputError

if TYPE_CHECKING:
    from qgraph import _native

F_ADD_SEALS, SHRINK, GROW = 1033, 2, 4  # linux/fcntl.h; Python names them only from 3.13 on
PAGE = mmap.PAGESIZE
MAX_SIZE = (1 << 63) - 1  # bytes of a file


class Region:
    """An open region of `size` bytes, and its `name`."""

    def __init__(self, handle: int, name: str, size: int) -> None:
        self._handle = handle
        self.name = name
        self.size = size

    @staticmethod
    def create(label: str, size: int) -> Region:
        """A new region of zeros; `label` is shown in /proc. Raises OutputError."""
        handle = native().memory_file(f"qgraph-{label}")
        with _as_output_error(label):
            if handle < 0:
                raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            region = Region(handle, f"/proc/{os.getpid()}/fd/{handle}", size)  # closes the handle
            if size > MAX_SIZE:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            os.ftruncate(handle, size)
            # Truncating it would crash every process that has it mapped.
            fcntl.fcntl(handle, F_ADD_SEALS, SHRINK | GROW)
        return region

    @staticmethod
    def attach(name: str) -> Region:
        """The region of that name. Raises LoadError if the process that created it has ended."""
        try:
            handle = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise LoadError(
                f"the shared memory cannot be opened: {error.strerror}",
                node=name,
                hint="the process that created it has ended",
            ) from None
        return Region(handle, name, os.fstat(handle).st_size)

    def reserve(self, begin: int, size: int) -> None:
        """Reserve memory for a part; without it, a write could end the process."""
        with _as_output_error(self.name):
            os.posix_fallocate(self._handle, begin, size)

    def view(self, begin: int, size: int, writable: bool = True) -> mmap.mmap:
        """A part that begins at a page. Raises LoadError if the region is shorter."""
        if begin + size > self.size:
            raise LoadError("the shared memory is shorter than its header states", node=self.name)
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        # All of it is mapped at once, so that the first use is not slower than later ones.
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        return mmap.mmap(self._handle, size, flags=flags, prot=protection, offset=begin)

    def __del__(self) -> None:
        os.close(self._handle)


def native() -> type[_native.broadcast]:
    """The native part. Raises UnsupportedError if it is not built."""
    found = kernels.native_broadcast()
    if found is None:
        raise kernels.not_available("shared memory between learner and actors")
    return found


def pages(size: int) -> int:
    """`size`, rounded up to a whole page."""
    return -(-size // PAGE) * PAGE


@contextmanager
def _as_output_error(label: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"no shared memory: {error.strerror}",
            node=label,
            hint="free some memory, or use fewer actors or smaller rings",
        ) from None
