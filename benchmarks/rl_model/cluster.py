"""The model of actors on many machines: a prediction, since nothing here has so many.

Each node has `ACTORS_OF_A_NODE` actors with a processor for each. The learner publishes at a fixed
interval. A node asks for the newest block when it has none on its way. In a tree, nodes pass blocks
on to others; otherwise the learner's node sends each one itself. Records return to the learner.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from benchmarks.rl_model.costs import ActorCosts, RunCosts

ACTORS_OF_A_NODE = 16
PERIOD = 200  # steps of an actor between two looks
LEAST_SECONDS, ROUNDS_TO_ALL = 3.0, 3.0  # of a modelled time
BRANCHES = 4  # of a node of the tree
LATENCY = 1e-4  # seconds of a message, assumed
WATTS = 10.0  # of a busy processor, assumed
JOULES_A_BYTE = 2e-8  # of a link at both of its ends, assumed
RAY_BYTES_A_SECOND = 8.4e6 / 11.48e-3  # into Ray's object store: benchmarks/results/transport.json
Steps = Generator[Any, Any, None]  # events of simpy


@dataclass(frozen=True)
class Prediction:
    """The second half of a modelled time.

    rate: steps a second. age: mean seconds since the weights of an action were published. sent:
    bytes a second that leave the learner's node. joules: of a million steps, without the learner.
    """

    rate: float
    age: float
    sent: float
    joules: float


class NetworkLink:
    """The outgoing or incoming side of a node's network: one transfer after the other."""

    def __init__(self, clock: simpy.Environment, bytes_a_second: float) -> None:
        self._clock, self._turns = clock, simpy.Resource(clock, 1)
        self._rate = bytes_a_second
        self.bytes = 0.0

    def transfer(self, size: float) -> Steps:
        with self._turns.request() as turn:
            yield turn
            yield self._clock.timeout(size / self._rate)
        self.bytes += size
        yield self._clock.timeout(LATENCY)


@dataclass
class ClusterNode:
    """A node: the version that it has, and when that was published."""

    link: NetworkLink
    version: int = 0
    newer: Any = None  # the event of its next block


@dataclass
class ClusterModel:
    """Actors on nodes; `gigabits`: of each node's link in each direction."""

    actors: int
    gigabits: float
    actor: ActorCosts
    costs: RunCosts
    tree: bool
    interval: float  # seconds between two published versions
    clock: simpy.Environment = field(default_factory=simpy.Environment)

    def run(self) -> Prediction:
        """Run the model for as long as several blocks take to all nodes."""
        clock, speed = self.clock, self.gigabits * 1e9 / 8
        count = -(-self.actors // ACTORS_OF_A_NODE)
        to_all = count * self.actor.block_bytes / speed
        seconds = LEAST_SECONDS if self.tree else max(LEAST_SECONDS, ROUNDS_TO_ALL * to_all)
        self._root = ClusterNode(NetworkLink(clock, speed), newer=clock.event())
        self._nodes = [
            ClusterNode(NetworkLink(clock, speed), newer=clock.event()) for _ in range(count)
        ]
        self._incoming = NetworkLink(clock, speed)
        self._published = [0.0]  # times
        self._steps = self._age = self._work = 0.0
        clock.process(self._learner())
        for number, node in enumerate(self._nodes):
            clock.process(self._fetch(number, node))
            here = min(ACTORS_OF_A_NODE, self.actors - number * ACTORS_OF_A_NODE)
            clock.process(self._act(node, here))
        clock.run(seconds / 2)
        self._steps = self._age = self._work = 0.0
        sent, moved = self._root.link.bytes, self._moved()
        clock.run(seconds)
        half = seconds / 2
        joules = WATTS * self._work + JOULES_A_BYTE * (self._moved() - moved)
        return Prediction(
            self._steps / half,
            self._age / max(self._steps, 1),
            (self._root.link.bytes - sent) / half,
            1e6 * joules / max(self._steps, 1),
        )

    def _moved(self) -> float:
        """Bytes that were moved over all links."""
        outgoing = sum(node.link.bytes for node in (self._root, *self._nodes))
        return outgoing + self._incoming.bytes

    def _learner(self) -> Steps:
        while True:
            yield self.clock.timeout(self.interval)
            moment = self.clock.now
            delay = self.costs.copy + self.actor.pack + self.actor.block_bytes / RAY_BYTES_A_SECOND
            yield self.clock.timeout(delay)
            self._published.append(moment)
            self._has(self._root, len(self._published) - 1)

    def _has(self, node: ClusterNode, version: int) -> None:
        node.version = version
        node.newer.succeed()
        node.newer = self.clock.event()

    def _fetch(self, number: int, node: ClusterNode) -> Steps:
        """Get the newest block of the node's source, again and again."""
        source = self._root
        if self.tree and number >= BRANCHES:
            source = self._nodes[number // BRANCHES - 1]
        while True:
            while source.version <= node.version:
                yield source.newer
            version = source.version
            yield from source.link.transfer(self.actor.block_bytes)
            self._has(node, version)

    def _act(self, node: ClusterNode, actors: int) -> Steps:
        """The actors of a node, which step alike. Records of one period may be on their way."""
        version, sent = 0, None
        while True:
            newer = node.version > version
            version = node.version
            work = PERIOD * self.actor.step + (self.actor.switch if newer else 0.0)
            yield self.clock.timeout(work)
            steps = PERIOD * actors
            self._steps += steps
            self._work += work * actors
            self._age += steps * (self.clock.now - self._published[version])
            if sent is not None:
                yield sent
            size = steps * self.costs.record_bytes
            sent = self.clock.process(self._incoming.transfer(size))
