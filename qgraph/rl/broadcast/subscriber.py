"""An actor's end of the broadcast: it takes the latest block at intervals."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from qgraph.errors import LoadError
from qgraph.ir.types import Array
from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.member import Member


@dataclass(frozen=True)
class BlockSource:
    """The source of an actor's blocks.

    blocks: the channel of blocks. weights: the channel whose version is the learner's. reader: the
    actor's number among the readers. on_demand: whether the actor has to ask for a block.
    """

    blocks: str
    weights: str
    reader: int
    on_demand: bool


class Subscriber:
    """Updates the policy of an actor.

    Args:
        source: The result of `settings` of a publisher.
        member: The process of the actor.
        period: Steps between two checks for a newer block.
        synchronous: Whether each check waits for the version that the learner has published.

    Attributes:
        refused: Number of blocks that the actor refused, so that it kept its last one.
        waited: Seconds spent on waiting for blocks.
        switched: Seconds spent on taking blocks.

    Examples:
        >>> from qgraph.rl.actor import Actor
        >>> from qgraph.rl.broadcast import Subscriber
        >>> def act(source, member) -> None:
        ...     subscriber = Subscriber(source, member, period=100)
        ...     block = subscriber.first()
        ...     if block is None:
        ...         return  # the run has ended
        ...     actor = Actor(block)
        ...     while member.running():
        ...         subscriber.step(actor.switch)
    """

    def __init__(
        self,
        source: BlockSource,
        member: Member,
        period: int = 1,
        synchronous: bool = False,
    ) -> None:
        self._reader = Channel.attach(source.blocks, source.reader)
        # Read only, for the learner's version.
        self._learner = Channel.open(source.weights).writer() if synchronous else None
        self._on_demand = source.on_demand
        self._member = member
        self._period = period
        self._steps = 0
        self.refused = 0
        self.waited = 0.0
        self.switched = 0.0

    @property
    def version(self) -> int:
        """Version of the block that the actor has."""
        return self._reader.version

    def first(self) -> Array | None:
        """Wait for the first block.

        Returns:
            The block, uint8 [size]; None if the run ends before it arrives.
        """
        if self._on_demand:
            self._reader.request()
        return self._reader.latest() if self._wait(0) else None

    def step(self, use: Callable[[Array], object]) -> bool:
        """Count a step of the actor, and check for a newer block at the end of each period.

        Args:
            use: Called with a newer block. It may raise LoadError to refuse the block, and must
                then keep the last one.

        Returns:
            Whether a block was accepted.
        """
        self._steps += 1
        if self._steps % self._period:
            return False
        return self.check_now(use)

    def check_now(self, use: Callable[[Array], object], least: int = 0) -> bool:
        """Check for a newer block now.

        Args:
            use: As for `step`.
            least: Version to wait for. The learner must be able to publish it without more records
                of this actor.

        Returns:
            Whether a block was accepted.
        """
        wanted = least if self._learner is None else max(least, self._learner.version)
        if wanted > self._reader.version:
            if self._on_demand:
                self._reader.request()
            self._wait(wanted)
        renewed = self._renew(use)
        if self._learner is None and self._on_demand:
            self._reader.request()  # for the next check
        return renewed

    def _renew(self, use: Callable[[Array], object]) -> bool:
        begin = time.perf_counter()
        try:
            renewed = self._reader.update(use)
        except LoadError:
            self.refused += 1
            return False
        if renewed:
            self.switched += time.perf_counter() - begin
        return renewed

    def _wait(self, version: int) -> bool:
        begin = time.perf_counter()
        arrived = self._member.wait(lambda seconds: self._reader.wait(version, seconds))
        self.waited += time.perf_counter() - begin
        return arrived
