"""Memory that processes share, under a name that no crash leaves behind.

A region is a file without a place in any folder: the system frees it with the last process that
has it open, however that ends. Its name, which other processes of the machine open it by, leads
through the process that made it and is gone with it.
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


class Region:
    """An open region of `size` bytes, and its `name`."""

    def __init__(self, handle: int, name: str, size: int) -> None:
        self._handle = handle
        self.name = name
        self.size = size

    @staticmethod
    def create(label: str, size: int) -> Region:
        """A new region of zeros; `label` is for who looks at /proc. Raises OutputError."""
        handle = native().memory_file(f"qgraph-{label}")
        with _told_as_output_error(label):
            if handle < 0:
                raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            os.ftruncate(handle, size)
            # Who cut it short would crash everyone who has it mapped.
            fcntl.fcntl(handle, F_ADD_SEALS, SHRINK | GROW)
        return Region(handle, f"/proc/{os.getpid()}/fd/{handle}", size)

    @staticmethod
    def attach(name: str) -> Region:
        """The region of that name. Raises LoadError where its maker is gone."""
        try:
            handle = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise LoadError(
                f"the shared memory cannot be opened: {error.strerror}",
                node=name,
                hint="the process that made it has ended",
            ) from None
        return Region(handle, name, os.fstat(handle).st_size)

    def reserve(self, begin: int, size: int) -> None:
        """Make sure that there is memory behind a part: else a write ends the process."""
        with _told_as_output_error(self.name):
            os.posix_fallocate(self._handle, begin, size)

    def view(self, begin: int, size: int, writable: bool = True) -> mmap.mmap:
        """A part that begins at a page. Raises LoadError where the region is shorter."""
        if begin + size > self.size:
            raise LoadError("the shared memory is shorter than its header states", node=self.name)
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        # All of it at once, so that its first use is as quick as any.
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        return mmap.mmap(self._handle, size, flags=flags, prot=protection, offset=begin)

    def __del__(self) -> None:
        os.close(self._handle)


def native() -> type[_native.broadcast]:
    """The native part. Raises UnsupportedError where it isn't built."""
    found = kernels.native_broadcast()
    if found is None:
        raise kernels.not_available("shared memory between learner and actors")
    return found


def pages(size: int) -> int:
    """`size`, up to a whole page."""
    return -(-size // PAGE) * PAGE


@contextmanager
def _told_as_output_error(label: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"no shared memory: {error.strerror}",
            node=label,
            hint="free some memory, or take fewer actors or smaller rings",
        ) from None
