"""Actors on other machines, through Ray.

On each machine a relay has a channel and rings, as on the learner's machine, so learner and actors
do not depend on where they are. A process of the run, this module, carries blocks to the relays
and records back. Ray gets bytes and numbers only, which it sends unchanged.

    python -m qgraph.rl.broadcast.ray, started by `RayNodes`
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qgraph.distribution import install_hint
from qgraph.errors import RunError, UsageError
from qgraph.foreign import RayObject
from qgraph.ir.types import Array
from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.experience import Experience, RecordWriter
from qgraph.rl.broadcast.member import Member, joined
from qgraph.rl.broadcast.publisher import Publisher
from qgraph.rl.broadcast.relay import Relay, form_text
from qgraph.rl.broadcast.subscriber import BlockSource
from qgraph.rl.broadcast.supervisor import Supervisor

NAME = "ray"
MODULE = "qgraph.rl.broadcast.ray"
BLOCKS, RECORDS, CRASHES = 0, 1, 2  # places in the member's numbers


@dataclass(frozen=True)
class RaySettings:
    """The settings of the process.

    rows: for each node, the rows of its actors on the board. nodes: ids of the nodes; None takes
    those that are alive. policy, block_size, rings, writers: the learner's channel and rings.
    actors: for each node, the settings of its actors (JSON). The rest is as in `RayNodes`.
    """

    address: str
    rows: tuple[tuple[int, ...], ...]
    nodes: tuple[str, ...] | None
    policy: BlockSource
    block_size: int
    rings: str
    writers: tuple[int, ...]
    module: str
    actors: tuple[tuple[str, ...], ...]
    environment: Mapping[str, str]
    restarts: int


class RayNodes:
    """Actors on nodes of a Ray cluster, for a learner's publisher and rings.

    actors: for each node with actors, the settings of each actor (a record or a mapping), to which
    `policy` and `records` are added. module: the module that an actor runs. reader: the number of
    the publisher's reader, which all actors share. writers: the number of a ring for each node.
    address: the cluster's address, as in `ray.init`. environment: environment variables of actors.
    nodes: ids of the nodes; by default those that are alive, the learner's own last. restarts: how
    often an actor, or a node, may crash.

    Raises UsageError if Ray is missing; `run.check()` reports later errors.
    """

    def __init__(
        self,
        run: Supervisor,
        publisher: Publisher,
        rings: Experience,
        *,
        module: str,
        actors: Sequence[Sequence[object]],
        reader: int,
        writers: Sequence[int],
        address: str = "auto",
        environment: Mapping[str, str] | None = None,
        nodes: Sequence[str] | None = None,
        restarts: int = 3,
    ) -> None:
        _ray()
        if len(writers) != len(actors) or (nodes is not None and len(nodes) != len(actors)):
            raise UsageError("each node with actors needs one ring and one id")
        self._run = run
        self._rows = tuple(tuple(run.places(len(node))) for node in actors)
        settings = RaySettings(
            address,
            self._rows,
            None if nodes is None else tuple(nodes),
            publisher.settings(reader),
            publisher.block_size,
            rings.name,
            tuple(writers),
            module,
            tuple(tuple(json.dumps(one, default=vars) for one in node) for node in actors),
            environment or {},
            restarts,
        )
        run.start(NAME, MODULE, settings)

    @property
    def sent(self) -> int:
        """The number of blocks that were sent to nodes."""
        return int(self._run.numbers(NAME)[BLOCKS])

    def numbers(self, node: int, actor: int) -> Array:
        """The numbers of an actor on another machine (`Member.numbers`), float64 [8]."""
        numbers: Array = self._run.board.rows["numbers"][self._rows[node][actor]]
        return numbers

    @property
    def crashes(self) -> int:
        """The number of restarts of remote actors."""
        return int(self._run.numbers(NAME)[CRASHES])


class _Node:
    """One node: its relay, and the exchange in progress."""

    def __init__(self, settings: RaySettings, number: int, place: str, ring: RecordWriter) -> None:
        self._settings = settings
        self._number = number
        self.rows = settings.rows[number]  # the rows of its actors on the run's board
        self._place = place
        self._ring = ring  # the learner's ring for this node
        self.version = -1  # the version of its latest block
        self.crashes = self.earlier = 0  # crashes of actors: in this relay, in earlier ones
        self.numbers: list[list[float]] = []  # the numbers of its actors
        self.lost = 0  # how often the node was lost
        self.call: RayObject = None
        self.start()

    def start(self) -> None:
        """Start a relay on the node, with its actors."""
        ray, settings = _ray(), self._settings
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        where = affinity(self._place, soft=self.lost > 0)  # after a loss, on any machine
        options = {"num_cpus": 0, "scheduling_strategy": where}
        rings = self._ring.rings
        self.relay = ray.remote(Relay).options(**options).remote(
            form_text(rings),
            settings.block_size,
            rings.capacity,
            settings.module,
            settings.actors[self._number],
            settings.environment,
            settings.restarts,
            self.numbers,
        )  # fmt: skip
        self.version = -1
        self.call = None

    def send(self, block: RayObject, version: int) -> None:
        """Begin an exchange, with a block if it is newer than the node's.

        It asks for as many records as the learner has space for, so that none get old on the way.
        """
        rings, newer = self._ring.rings, version > self.version
        free = rings.capacity - rings.unread(self._ring.number)
        if self.call is None and (newer or free):
            given = (block, version) if newer else (b"", -1)
            self.call = self.relay.exchange.remote(*given, free)
            self.version = max(version, self.version)

    def receive(self) -> tuple[int, bool]:
        """End an exchange: the number of records, and whether an actor asked for a block."""
        ray = _ray()
        try:
            records, asked, self.crashes, self.numbers = ray.get(self.call)
        except ray.exceptions.RayTaskError as error:  # an error of the relay
            raise RunError(str(error.cause), node=f"node {self._place}") from None
        except (ray.exceptions.RayActorError, ray.exceptions.ActorUnschedulableError) as error:
            self.lost += 1
            self.earlier, self.crashes = self.earlier + self.crashes, 0
            if self.lost > self._settings.restarts:
                raise RunError(f"lost: {error}", node=f"node {self._place}") from None
            self.start()
            return 0, True
        self.call = None
        arrived = np.frombuffer(records, self._ring.rings.dtype)
        self._ring.put(arrived)
        return len(arrived), asked


def carry(member: Member, settings: RaySettings) -> None:
    """Carry blocks to the nodes and records from them, until the run ends."""
    ray = _ray()
    ray.init(address=settings.address, log_to_driver=False)
    places = settings.nodes or _places(len(settings.actors))
    reader = Channel.attach(settings.policy.blocks, settings.policy.reader)
    rings = Experience.open(settings.rings)
    ends = [rings.writer(number) for number in settings.writers]
    nodes = [_Node(settings, *given) for given in zip(range(len(ends)), places, ends, strict=True)]
    block: RayObject = None
    reader.request()
    while member.running():
        latest = reader.latest()
        if latest is not None:
            block = ray.put(latest.tobytes())
            member.numbers[BLOCKS] += 1
        for node in nodes:
            node.send(block, reader.version)
        calls = {node.call: node for node in nodes if node.call is not None}
        if not calls:  # the learner has no space
            reader.wait(reader.version + 1, 0.01)
            continue
        ended, _ = ray.wait(list(calls), timeout=0.1)
        for call in ended:
            count, asked = calls[call].receive()
            member.numbers[RECORDS] += count
            for row, numbers in zip(calls[call].rows, calls[call].numbers, strict=False):
                member.board.rows["numbers"][row] = numbers
            if asked:
                reader.request()
        member.numbers[CRASHES] = sum(node.earlier + node.crashes for node in nodes)
    ray.wait([node.relay.stop.remote() for node in nodes], num_returns=len(nodes), timeout=3.0)
    ray.shutdown()


def _places(count: int) -> list[str]:
    """The ids of nodes that are alive, this one last, since it runs the learner."""
    ray = _ray()
    here = ray.get_runtime_context().get_node_id()
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    places = sorted(alive, key=lambda place: place == here)
    if len(places) < count:
        raise UsageError(f"actors need {count} nodes, but the cluster has {len(places)}")
    return places[:count]


def _ray() -> RayObject:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise UsageError(
            "actors on several machines need Ray, which is not installed",
            hint=install_hint("ray", extra="ray"),
        ) from None
    return ray


def main() -> None:
    with joined(RaySettings) as (member, settings):
        carry(member, settings)


if __name__ == "__main__":
    main()
