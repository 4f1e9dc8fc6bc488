"""An actor's end: the latest block, every so many steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from qgraph.errors import LoadError
from qgraph.ir.types import Array
from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.member import Member


class Subscriber:
    """Keeps an actor's policy fresh.

        subscriber = Subscriber(settings, member, period=100)
        block = subscriber.first()
        if block is None: return          # the run has ended
        actor = Actor(block)
        while member.going():
            subscriber.step(actor.switch)
            ...

    settings: of `Publisher.settings`. period: steps between looks at what is new. synchronous: at
    each look the actor waits until it has what the learner had published by then.

    refused: blocks that the actor did not accept; it went on with its last one. waited, switched:
    seconds spent on waiting for blocks, and on taking them.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        member: Member,
        period: int = 1,
        synchronous: bool = False,
    ) -> None:
        self._reader = Channel.attach(settings["blocks"], int(settings["reader"]))
        # Only looked at: how far the learner is.
        self._learner = Channel.open(settings["weights"]).writer() if synchronous else None
        self._on_demand = bool(settings["on_demand"])
        self._member = member
        self._period = period
        self._steps = 0
        self.refused = 0
        self.waited = 0.0
        self.switched = 0.0

    @property
    def version(self) -> int:
        """That of the block held."""
        return self._reader.version

    def first(self) -> Array | None:
        """The first block, once there is one; None where the run ends before."""
        if self._on_demand:
            self._reader.ask()
        return self._reader.latest() if self._wait(0) else None

    def step(self, use: Callable[[Array], object]) -> bool:
        """To be called before each step of the actor; `use` is called with a newer block.

        It may raise LoadError for one that it does not accept, and is then to be as before. Was
        one accepted?
        """
        self._steps += 1
        if self._steps % self._period:
            return False
        return self.look(use)

    def look(self, use: Callable[[Array], object]) -> bool:
        """The same, whatever the period."""
        if self._learner is None:
            found = self._renew(use)
            if self._on_demand:
                self._reader.ask()  # for the next look
            return found
        published = self._learner.version
        if published > self._reader.version:
            if self._on_demand:
                self._reader.ask()
            self._wait(published)
        return self._renew(use)

    def _renew(self, use: Callable[[Array], object]) -> bool:
        begin = time.perf_counter()
        try:
            found = self._reader.renew(use)
        except LoadError:
            self.refused += 1
            return False
        if found:
            self.switched += time.perf_counter() - begin
        return found

    def _wait(self, version: int) -> bool:
        begin = time.perf_counter()
        found = self._member.wait(lambda seconds: self._reader.wait(version, seconds))
        self.waited += time.perf_counter() - begin
        return found
