"""Blocks of bytes from one writer to many readers, by a pointer in shared memory.

The writer fills a buffer that no reader has and publishes it. A reader takes the latest block and
reads it in place, for any time. Neither waits for the other unless it asks to.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from qgraph.errors import LoadError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.broadcast.memory import PAGE, Region, native, pages

MAGIC = b"qgraphc1"
LABEL = struct.Struct("<8s2q")  # at the front: magic, bytes of a block, readers
MAX_READERS = 1024
MAX_SIZE = 1 << 40


class Channel:
    """The memory of a channel; `writer()` and `reader(i)` are its ends.

    The process that creates it need not use an end, but must live while other processes attach.
    """

    def __init__(self, region: Region, size: int, readers: int) -> None:
        self._region = region
        self.size = size
        self.readers = readers
        self.name = region.name
        head = native().channel_head(readers)
        self._first_buffer = PAGE + head
        self._native = native().Channel(region.view(PAGE, head), readers)

    @staticmethod
    def create(size: int, readers: int) -> Channel:
        """A channel for blocks of `size` bytes. Raises UsageError, OutputError."""
        if not (0 < size <= MAX_SIZE and 0 < readers <= MAX_READERS):
            raise UsageError(f"a channel of {size} bytes for {readers} readers cannot be made")
        buffers = native().channel_buffers(readers)
        head = PAGE + native().channel_head(readers)
        region = Region.create("channel", head + buffers * pages(size))
        region.reserve(0, head)
        region.view(0, PAGE)[: LABEL.size] = LABEL.pack(MAGIC, size, readers)
        return Channel(region, size, readers)

    @staticmethod
    def open(name: str) -> Channel:
        """A channel that another process created. Raises LoadError."""
        region = Region.attach(name)
        magic, size, readers = LABEL.unpack(region.view(0, PAGE, writable=False)[: LABEL.size])
        if magic != MAGIC or not (0 < size <= MAX_SIZE and 0 < readers <= MAX_READERS):
            raise LoadError("not a channel", node=name)
        return Channel(region, size, readers)

    @staticmethod
    def attach(name: str, reader: int) -> Reader:
        """Reader number `reader` of a channel that another process created. Raises LoadError."""
        return Channel.open(name).reader(reader)

    def writer(self) -> Writer:
        """The end that publishes; a channel has one at a time."""
        return Writer(self)

    def reader(self, number: int) -> Reader:
        """The end of reader `number`; an earlier reader of it must have ended."""
        if not 0 <= number < self.readers:
            raise UsageError(f"reader {number} of a channel with {self.readers}")
        self.clear(number)
        return Reader(self, number)

    def clear(self, reader: int) -> None:
        """Release the blocks of a reader that has ended."""
        for slot in range(2):
            self._native.release(reader, slot)

    def buffer(self, number: int, writable: bool) -> Array:
        """Buffer `number`, uint8 [size]."""
        begin = self._first_buffer + number * pages(self.size)
        if writable:
            self._region.reserve(begin, self.size)
        return np.frombuffer(self._region.view(begin, self.size, writable), np.uint8)


class _End:
    """The part that both ends of a channel share: its buffers, mapped when first used."""

    def __init__(self, channel: Channel, writable: bool) -> None:
        self.channel = channel
        self._native = channel._native
        self._writable = writable
        self._mapped: dict[int, Array] = {}

    def _buffer(self, number: int) -> Array:
        if number not in self._mapped:
            self._mapped[number] = self.channel.buffer(number, self._writable)
        return self._mapped[number]


class Writer(_End):
    """Publishes blocks. Only `wait_asked` waits."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, writable=True)
        self._open = -1

    def room(self) -> Array:
        """The memory for the next block, uint8 [size], which readers get by `publish`.

        Its content is undefined. Raises OutputError if memory is short.
        """
        if self._open < 0:
            number = self._native.room()
            if number < 0:
                raise LoadError("the channel's memory is damaged", node=self.channel.name)
            room = self._buffer(number)
            self._open = number
            return room
        return self._buffer(self._open)

    def publish(self, version: int) -> None:
        """Make the block in `room()` the latest. Raises UsageError unless the version grows."""
        if self._open < 0:
            raise UsageError("no block was written into room() since the last publish")
        if not self._native.publish(self._open, version):
            raise UsageError(f"version {version} after version {self.version}: versions must grow")
        self._open = -1

    @property
    def version(self) -> int:
        """The latest version that was published; -1 before the first."""
        return self._native.version()

    def asked(self) -> bool:
        """Whether a reader has called `ask` since the last call of this."""
        return self._native.asked()

    def wait_asked(self, timeout: float) -> bool:
        """Sleep until a reader asks, at most `timeout` seconds; then call `asked`."""
        return self._native.wait_asked(int(timeout * 1e9))


class Reader(_End):
    """Takes the latest block. `version` is the version of its block, -1 without one."""

    def __init__(self, channel: Channel, number: int) -> None:
        super().__init__(channel, writable=False)
        self.number = number
        self.version = -1
        self._slot = 0
        self._refused = -1

    def latest(self) -> Array | None:
        """The latest block, uint8 [size], read-only; None unless it is newer than the current one.

        The current block is released and must not be used any more. `renew` releases it only after
        the new one was accepted.
        """
        claimed = self._claim()
        if claimed is None:
            return None
        self._keep(claimed[1])
        return claimed[0]

    def renew(self, use: Callable[[Array], object]) -> bool:
        """Call `use` with the latest block if there is a newer one; returns whether there was.

        The current block is released when `use` returns. If it raises, the current block is kept,
        the new one is not offered again, and the exception is passed on.
        """
        claimed = self._claim()
        if claimed is None:
            return False
        block, version = claimed
        try:
            use(block)
        except BaseException:
            self._refused = version
            self._native.release(self.number, 1 - self._slot)
            raise
        self._keep(version)
        return True

    def wait(self, version: int, timeout: float) -> bool:
        """Sleep until `version` or a later one is published; False after `timeout` seconds."""
        end = native().now() + int(timeout * 1e9)
        while not self._native.wait(version, max(end - native().now(), 0)):
            if native().now() >= end:
                return False
        return True

    def ask(self) -> None:
        """Ask a writer that publishes on demand for a block."""
        self._native.ask()

    def _claim(self) -> tuple[Array, int] | None:
        """Hold the latest block in the free slot."""
        known = max(self.version, self._refused)
        number, version = self._native.claim(self.number, 1 - self._slot, known)
        return None if number < 0 else (self._buffer(number), version)

    def _keep(self, version: int) -> None:
        self._native.release(self.number, self._slot)
        self._slot = 1 - self._slot
        self.version = version
