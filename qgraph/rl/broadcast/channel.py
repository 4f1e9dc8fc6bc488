"""Blocks of bytes from one writer to many readers, by a pointer in shared memory.

The writer fills a buffer that nobody reads and publishes it. A reader takes the latest and reads it
where it lies, for as long as it likes. Neither waits for the other unless it asks to.
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

    The process that makes it need not be one of them, but has to live as long as others attach.
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
            raise UsageError(f"a channel of {size} bytes for {readers} readers")
        buffers = native().channel_buffers(readers)
        head = PAGE + native().channel_head(readers)
        region = Region.create("channel", head + buffers * pages(size))
        region.reserve(0, head)
        region.view(0, PAGE)[: LABEL.size] = LABEL.pack(MAGIC, size, readers)
        return Channel(region, size, readers)

    @staticmethod
    def open(name: str) -> Channel:
        """A channel that another process made. Raises LoadError."""
        region = Region.attach(name)
        magic, size, readers = LABEL.unpack(region.view(0, PAGE, writable=False)[: LABEL.size])
        if magic != MAGIC or not (0 < size <= MAX_SIZE and 0 < readers <= MAX_READERS):
            raise LoadError("is not a channel", node=name)
        return Channel(region, size, readers)

    @staticmethod
    def attach(name: str, reader: int) -> Reader:
        """Reader number `reader` of a channel that another process made. Raises LoadError."""
        return Channel.open(name).reader(reader)

    def writer(self) -> Writer:
        """The end that publishes. A channel has one at a time."""
        return Writer(self)

    def reader(self, number: int) -> Reader:
        """The end of reader `number`; one that had it before is taken as gone."""
        if not 0 <= number < self.readers:
            raise UsageError(f"reader {number} of a channel with {self.readers}")
        self.clear(number)
        return Reader(self, number)

    def clear(self, reader: int) -> None:
        """Free what a reader holds, who will read no more."""
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
    """Publishes blocks. Nothing of it waits, but `wait_asked`."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, writable=True)
        self._open = -1

    def room(self) -> Array:
        """The memory for the next block, uint8 [size]: nobody reads it until `publish`.

        What is in it is of no meaning. Raises OutputError where memory is short.
        """
        if self._open < 0:
            found = self._native.room()
            if found < 0:
                raise LoadError("the channel's memory is damaged", node=self.channel.name)
            room = self._buffer(found)
            self._open = found
            return room
        return self._buffer(self._open)

    def publish(self, version: int) -> None:
        """Make what is in `room()` the latest. Raises UsageError unless the version grows."""
        if self._open < 0:
            raise UsageError("nothing was written into room() since the last publish")
        if not self._native.publish(self._open, version):
            raise UsageError(f"version {version} after version {self.version}")
        self._open = -1

    @property
    def version(self) -> int:
        """The latest published; -1 before the first."""
        return self._native.version()

    def asked(self) -> bool:
        """Did a reader `ask` since this was last called?"""
        return self._native.asked()

    def wait_asked(self, timeout: float) -> bool:
        """Sleep until a reader asks, at most `timeout` seconds; `asked` is still to be called."""
        return self._native.wait_asked(int(timeout * 1e9))


class Reader(_End):
    """Takes the latest block. `version` is that of the block it holds, -1 without one."""

    def __init__(self, channel: Channel, number: int) -> None:
        super().__init__(channel, writable=False)
        self.number = number
        self.version = -1
        self._slot = 0
        self._refused = -1

    def latest(self) -> Array | None:
        """The latest block, uint8 [size], read-only; None unless it is newer than the one held.

        The one that was held before is given back: nothing may use it any more. `renew` is for
        who has to look at a block before letting go of the last.
        """
        found = self._claim()
        if found is None:
            return None
        self._keep(found[1])
        return found[0]

    def renew(self, use: Callable[[Array], object]) -> bool:
        """Call `use` with the latest block, if there is a newer one: was there?

        The block held before is given back once `use` returns. Where it raises, the one held before
        is kept and the new one never offered again; the error passes through.
        """
        found = self._claim()
        if found is None:
            return False
        block, version = found
        try:
            use(block)
        except BaseException:
            self._refused = version
            self._native.release(self.number, 1 - self._slot)
            raise
        self._keep(version)
        return True

    def wait(self, version: int, timeout: float) -> bool:
        """Sleep until `version` or a later one is there, at most `timeout` seconds: is it?"""
        end = native().now() + int(timeout * 1e9)
        while not self._native.wait(version, max(end - native().now(), 0)):
            if native().now() >= end:
                return False
        return True

    def ask(self) -> None:
        """Tell a writer that publishes on demand that a block is wanted."""
        self._native.ask()

    def _claim(self) -> tuple[Array, int] | None:
        """Hold the latest in the slot that is free."""
        known = max(self.version, self._refused)
        number, version = self._native.claim(self.number, 1 - self._slot, known)
        return None if number < 0 else (self._buffer(number), version)

    def _keep(self, version: int) -> None:
        self._native.release(self.number, self._slot)
        self._slot = 1 - self._slot
        self.version = version
