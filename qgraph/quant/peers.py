"""Processes that run the same calibration together, each on its own chunks of the samples.

Process p of n computes chunks p, p + n, p + 2n ... What is found in chunks is exchanged, in the
order of chunks, so that every process continues with the numbers of one process alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from qgraph.ir.types import Array
from qgraph.parallel import Each
from qgraph.quant.samples.data import LazyChunks

T = TypeVar("T")
R = TypeVar("R")


class Peers(Protocol):
    """The processes; `index` is the number of this one, of `count`."""

    @property
    def index(self) -> int: ...

    @property
    def count(self) -> int: ...

    def gathered(self, part: T) -> Sequence[T]:
        """The parts of all processes, by their numbers. All of them wait here for each other."""


class Alone:
    """A process without others."""

    index, count = 0, 1

    def gathered(self, part: T) -> Sequence[T]:
        return [part]


ALONE = Alone()


def own_items(items: Sequence[T], peers: Peers) -> Sequence[T]:
    """The items of this process."""
    return items[peers.index :: peers.count]


def interleaved(parts: Sequence[Sequence[R]]) -> list[R]:
    """All items in order, from those of each process."""
    total, count = sum(map(len, parts)), len(parts)
    return [parts[i % count][i // count] for i in range(total)]


def each_with(each: Each, peers: Peers) -> Each:
    """A `map` whose function is applied to own items only, and whose results are those of all."""
    if peers.count == 1:
        return each

    def over_all(function: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        own = [*each(function, own_items([*items], peers))]
        return interleaved(peers.gathered(own))

    return over_all


class OwnChunks(LazyChunks):
    """Chunks of one input; this process has only its own. `total`: those of all processes."""

    def __init__(self, own: Sequence[Array], total: int, peers: Peers) -> None:
        self.own, self.total, self.peers = own, total, peers

    def __len__(self) -> int:
        return self.total

    def chunk(self, index: int) -> Array:
        number, peer = divmod(index, self.peers.count)
        assert peer == self.peers.index, "a chunk of another process"
        return self.own[number]


def own_chunks(
    chunks: Mapping[str, Sequence[Array]], index: int, count: int
) -> dict[str, list[Array]]:
    """The chunks of one of `count` processes, by input."""
    return {
        name: [arrays[i] for i in range(index, len(arrays), count)]
        for name, arrays in chunks.items()
    }
