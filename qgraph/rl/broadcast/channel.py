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
    """Blocks of bytes from one writer to many readers, in shared memory.

    `writer()` and `reader(number)` return its ends. The process that creates a channel does not
    have to use an end, but it must live until other processes have attached. `create` and `open`
    are the usual constructors.

    Args:
        region: The shared memory.
        size: Bytes of a block.
        readers: Number of readers.

    Attributes:
        size: Bytes of a block.
        readers: Number of readers.
        name: Name of the memory, by which other processes open the channel.

    Examples:
        >>> from qgraph.rl.broadcast import Channel
        >>> channel = Channel.create(size=4, readers=1)
        >>> writer, reader = channel.writer(), channel.reader(0)
        >>> writer.next_block()[:] = [1, 2, 3, 4]
        >>> writer.publish(version=0)
        >>> reader.latest().tolist(), reader.version
        ([1, 2, 3, 4], 0)
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
        """Create a channel in shared memory.

        Args:
            size: Bytes of a block.
            readers: Number of readers, at most 1024.

        Returns:
            The channel.

        Raises:
            UsageError: A size is out of range.
            OutputError: There is not enough shared memory.
        """
        if not (0 < size <= MAX_SIZE and 0 < readers <= MAX_READERS):
            raise UsageError(f"a channel cannot have {size} bytes and {readers} readers")
        buffers = native().channel_buffers(readers)
        head = PAGE + native().channel_head(readers)
        region = Region.create("channel", head + buffers * pages(size))
        region.reserve(0, head)
        region.view(0, PAGE)[: LABEL.size] = LABEL.pack(MAGIC, size, readers)
        return Channel(region, size, readers)

    @staticmethod
    def open(name: str) -> Channel:
        """Open a channel that another process created.

        Args:
            name: `Channel.name` of that process.

        Returns:
            The channel.

        Raises:
            LoadError: No channel has this name, or its memory is damaged.
        """
        region = Region.attach(name)
        magic, size, readers = LABEL.unpack(region.view(0, PAGE, writable=False)[: LABEL.size])
        if magic != MAGIC or not (0 < size <= MAX_SIZE and 0 < readers <= MAX_READERS):
            raise LoadError("not a channel", node=name)
        return Channel(region, size, readers)

    @staticmethod
    def attach(name: str, reader: int) -> Reader:
        """Open a channel that another process created, as one of its readers.

        Args:
            name: `Channel.name` of that process.
            reader: Number of the reader, from 0.

        Returns:
            The reader.

        Raises:
            LoadError: No channel has this name, or its memory is damaged.
            UsageError: The number is not that of a reader.
        """
        return Channel.open(name).reader(reader)

    def writer(self) -> Writer:
        """Get the end that publishes. A channel has one at a time.

        Returns:
            The writer.
        """
        return Writer(self)

    def reader(self, number: int) -> Reader:
        """Get the end of a reader. An earlier reader of the same number must have ended.

        Args:
            number: Number of the reader, from 0.

        Returns:
            The reader.

        Raises:
            UsageError: The number is not that of a reader.
        """
        if not 0 <= number < self.readers:
            raise UsageError(f"reader {number} does not exist: the channel has {self.readers}")
        self.clear(number)
        return Reader(self, number)

    def clear(self, reader: int) -> None:
        """Release the blocks of a reader that has ended.

        Args:
            reader: Number of the reader.
        """
        for slot in range(2):
            self._native.release(reader, slot)

    def buffer(self, number: int, writable: bool) -> Array:
        """Map one of the buffers that hold blocks.

        Args:
            number: Number of the buffer, from 0.
            writable: Whether the view can be written to.

        Returns:
            The bytes, uint8 [size].
        """
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
    """The end of a channel that publishes blocks. Only `wait_requested` waits.

    Args:
        channel: The channel.

    Examples:
        >>> from qgraph.rl.broadcast import Channel
        >>> writer = Channel.create(size=4, readers=1).writer()
        >>> writer.next_block()[:] = 0
        >>> writer.publish(version=7)
        >>> writer.version
        7
    """

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, writable=True)
        self._open = -1

    def next_block(self) -> Array:
        """Get the memory for the next block. `publish` makes it available to readers.

        Returns:
            The memory, uint8 [size], with undefined content.

        Raises:
            LoadError: The memory of the channel is damaged.
            OutputError: There is not enough memory.
        """
        if self._open < 0:
            number = self._native.room()
            if number < 0:
                raise LoadError("the channel's memory is damaged", node=self.channel.name)
            block = self._buffer(number)
            self._open = number
            return block
        return self._buffer(self._open)

    def publish(self, version: int) -> None:
        """Make the block in `next_block()` the latest one.

        Args:
            version: Version of the block, larger than the last one.

        Raises:
            UsageError: The version is not larger, or no block was written since the last call.
        """
        if self._open < 0:
            raise UsageError("no block was written into next_block() since the last publish")
        if not self._native.publish(self._open, version):
            raise UsageError(f"version {version} after version {self.version}: versions must grow")
        self._open = -1

    @property
    def version(self) -> int:
        """The latest version that was published; -1 before the first."""
        return self._native.version()

    def requested(self) -> bool:
        """Check for a request, and reset it.

        Returns:
            Whether a reader has called `request` since the last call.
        """
        return self._native.asked()

    def wait_requested(self, timeout: float) -> bool:
        """Sleep until a reader requests a block. Call `requested` then.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether there is a request.
        """
        return self._native.wait_asked(int(timeout * 1e9))


class Reader(_End):
    """One reader of a channel.

    Args:
        channel: The channel.
        number: Number of the reader, from 0.

    Attributes:
        version: Version of the current block; -1 without one.

    Examples:
        >>> from qgraph.rl.broadcast import Channel
        >>> reader = Channel.create(size=4, readers=1).reader(0)
        >>> reader.latest() is None, reader.version
        (True, -1)
    """

    def __init__(self, channel: Channel, number: int) -> None:
        super().__init__(channel, writable=False)
        self.number = number
        self.version = -1
        self._slot = 0
        self._refused = -1

    def latest(self) -> Array | None:
        """Take the latest block and release the current one, which must not be used any more.

        `update` releases the current block only after the new one was accepted.

        Returns:
            The block, uint8 [size], read-only; None without a newer one.
        """
        claimed = self._claim()
        if claimed is None:
            return None
        self._keep(claimed[1])
        return claimed[0]

    def update(self, use: Callable[[Array], object]) -> bool:
        """Call a function with the latest block, if there is a newer one.

        The current block is released when the function returns. If it raises, the current block is
        kept, the new one is not offered again, and the exception is passed on.

        Args:
            use: Called with the block, uint8 [size].

        Returns:
            Whether there was a newer block.
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
        """Sleep until a version is published.

        Args:
            version: The version to wait for; a later one counts too.
            timeout: Seconds to wait at most.

        Returns:
            Whether the version was published in time.
        """
        end = native().now() + int(timeout * 1e9)
        while not self._native.wait(version, max(end - native().now(), 0)):
            if native().now() >= end:
                return False
        return True

    def request(self) -> None:
        """Request a block from a writer that publishes on demand."""
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
