"""Actors on other machines, by Ray.

On each of them a relay has its actors' channel and rings, as on the learner's own machine, so that
learner and actors are the same wherever they are. A process of the run, this module, carries blocks
there and records back. Ray is given bytes and numbers only, which it sends as they are.

    python -m qgraph.rl.broadcast.ray, started by `RayNodes`
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from qgraph.distribution import install_hint
from qgraph.errors import RunError, UsageError
from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.experience import Experience
from qgraph.rl.broadcast.member import Member, joined
from qgraph.rl.broadcast.publisher import Publisher
from qgraph.rl.broadcast.relay import Relay, form_text
from qgraph.rl.broadcast.supervisor import Supervisor

NAME = "ray"
MODULE = "qgraph.rl.broadcast.ray"
BLOCKS, RECORDS, CRASHES = 0, 1, 2  # of the member's numbers: sent, brought, of actors afar


class RayNodes:
    """Actors on nodes of a Ray cluster, for a learner's publisher and rings.

    actors: for each node that has some, the settings (JSON) of each of its actors, to which
    `policy` and `records` are added. module: what an actor is. reader: of the publisher, for all
    of them together. writers: of the rings, one for each node. address: of the cluster, as
    `ray.init` takes it. environment: variables for actors. nodes: their ids; else those that live,
    the learner's own last. restarts: how often an actor, or a node, may crash.

    Raises UsageError where Ray is missing; what goes wrong later shows in `run.check()`.
    """

    def __init__(
        self,
        run: Supervisor,
        publisher: Publisher,
        rings: Experience,
        *,
        module: str,
        actors: Sequence[Sequence[Mapping[str, Any]]],
        reader: int,
        writers: Sequence[int],
        address: str = "auto",
        environment: Mapping[str, str] | None = None,
        nodes: Sequence[str] | None = None,
        restarts: int = 3,
    ) -> None:
        _ray()
        if len(writers) != len(actors) or (nodes is not None and len(nodes) != len(actors)):
            raise UsageError("each node with actors has a ring of its own")
        self._run = run
        self._rows = [list(run.places(len(node))) for node in actors]
        settings = {
            "address": address,
            "rows": self._rows,
            "nodes": nodes,
            "policy": publisher.settings(reader),
            "block_size": publisher.block_size,
            "rings": rings.name,
            "writers": list(writers),
            "module": module,
            "actors": [[json.dumps(one) for one in node] for node in actors],
            "environment": dict(environment or {}),
            "restarts": restarts,
        }
        run.start(NAME, MODULE, settings)

    @property
    def sent(self) -> int:
        """Blocks that were sent to nodes."""
        return int(self._run.numbers(NAME)[BLOCKS])

    def numbers(self, node: int, actor: int) -> Any:
        """The numbers of an actor on another machine (`Member.numbers`), float64 [8]."""
        return self._run.board.rows["numbers"][self._rows[node][actor]]

    @property
    def crashes(self) -> int:
        """How often actors afar were restarted."""
        return int(self._run.numbers(NAME)[CRASHES])


class _Node:
    """One node: its relay, and the one exchange that is under way."""

    def __init__(self, settings: Mapping[str, Any], number: int, place: str, ring: Any) -> None:
        self._settings = settings
        self._number = number
        self.rows: list[int] = settings["rows"][number]  # of its actors, on the run's board
        self._place = place
        self._ring = ring  # the learner's
        self.version = -1  # that it has
        self.crashes = self.earlier = 0  # of actors: of this relay, and of those before
        self.numbers: list[list[float]] = []  # that its actors show
        self.lost = 0  # how often the node was
        self.call: Any = None
        self.start()

    def start(self) -> None:
        """A relay on the node, with its actors."""
        ray, settings = _ray(), self._settings
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        where = affinity(self._place, soft=self.lost > 0)  # a machine that is gone has no place
        options = {"num_cpus": 0, "scheduling_strategy": where}
        rings = self._ring.rings
        self.relay = ray.remote(Relay).options(**options).remote(
            form_text(rings),
            settings["block_size"],
            rings.capacity,
            settings["module"],
            settings["actors"][self._number],
            settings["environment"],
            settings["restarts"],
            self.numbers,
        )  # fmt: skip
        self.version = -1
        self.call = None

    def send(self, block: Any, version: int) -> None:
        """Begin an exchange: with a block if it is newer than the node's, for as many records as
        the learner has room for, so that none wait on the way and get old.
        """
        rings, newer = self._ring.rings, version > self.version
        room = rings.capacity - rings.filled(self._ring.number)
        if self.call is None and (newer or room):
            given = (block, version) if newer else (b"", -1)
            self.call = self.relay.exchange.remote(*given, room)
            self.version = max(version, self.version)

    def receive(self) -> tuple[int, bool]:
        """End it: how many records came, and did an actor ask for a block?"""
        ray = _ray()
        try:
            records, asked, self.crashes, self.numbers = ray.get(self.call)
        except ray.exceptions.RayTaskError as error:  # the relay's own
            raise RunError(str(error.cause), node=f"node {self._place}") from None
        except (ray.exceptions.RayActorError, ray.exceptions.ActorUnschedulableError) as error:
            self.lost += 1
            self.earlier, self.crashes = self.earlier + self.crashes, 0
            if self.lost > self._settings["restarts"]:
                raise RunError(f"was lost: {error}", node=f"node {self._place}") from None
            self.start()
            return 0, True
        self.call = None
        found = np.frombuffer(records, self._ring.rings.dtype)
        self._ring.put(found)
        return len(found), asked


def carry(member: Member, settings: dict[str, Any]) -> None:
    """Blocks to the nodes and records from them, until the run ends."""
    ray = _ray()
    ray.init(address=settings["address"], log_to_driver=False)
    places = settings["nodes"] or _places(len(settings["actors"]))
    policy = settings["policy"]
    reader = Channel.attach(policy["blocks"], policy["reader"])
    rings = Experience.open(settings["rings"])
    ends = [rings.writer(number) for number in settings["writers"]]
    nodes = [_Node(settings, *given) for given in zip(range(len(ends)), places, ends, strict=True)]
    block: Any = None
    reader.ask()
    while member.going():
        found = reader.latest()
        if found is not None:
            block = ray.put(found.tobytes())
            member.numbers[BLOCKS] += 1
        for node in nodes:
            node.send(block, reader.version)
        calls = {node.call: node for node in nodes if node.call is not None}
        if not calls:  # the learner takes nothing
            reader.wait(reader.version + 1, 0.01)
            continue
        ended, _ = ray.wait(list(calls), timeout=0.1)
        for call in ended:
            count, asked = calls[call].receive()
            member.numbers[RECORDS] += count
            for row, numbers in zip(calls[call].rows, calls[call].numbers, strict=False):
                member.board.rows["numbers"][row] = numbers
            if asked:
                reader.ask()
        member.numbers[CRASHES] = sum(node.earlier + node.crashes for node in nodes)
    ray.wait([node.relay.stop.remote() for node in nodes], num_returns=len(nodes), timeout=3.0)
    ray.shutdown()


def _places(count: int) -> list[str]:
    """Nodes that live, this one last: its processor has the learner."""
    ray = _ray()
    here = ray.get_runtime_context().get_node_id()
    found = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    found = sorted(found, key=lambda place: place == here)
    if len(found) < count:
        raise UsageError(f"{count} nodes are to have actors, but the cluster has {len(found)}")
    return found[:count]


def _ray() -> Any:
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
    with joined() as (member, settings):
        carry(member, settings)


if __name__ == "__main__":
    main()
