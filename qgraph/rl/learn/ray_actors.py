"""Actors on other machines, by Ray: the same processes, and to the learner the same records."""

from __future__ import annotations

from typing import Any

from qgraph.rl.actor import ActorProgram
from qgraph.rl.broadcast import Experience, Publisher, Supervisor
from qgraph.rl.broadcast.ray import RayNodes
from qgraph.rl.compress.settings import Settings
from qgraph.rl.head import Head
from qgraph.rl.learn.options import Options
from qgraph.rl.learn.sources import (
    MODULE,
    ONE_THREAD,
    RESTARTS,
    RING,
    ActorProcesses,
    actor_settings,
    parts_of,
)


class RayActors(ActorProcesses):
    """Actor i is on node i % nodes; all of a node share a ring here."""

    def __init__(
        self,
        options: Options,
        program: ActorProgram,
        head: Head,
        dtype: Any,
        begun: int,
        compression: Settings | None = None,  # always None: options refuse it
    ) -> None:
        self.options = options
        self.run = Supervisor(processes=options.actors + 2)
        try:
            self.publisher = Publisher(
                self.run, program, 1, bits=options.broadcast_bits, on_demand=options.on_demand
            )
            self.experience = Experience.create(dtype, RING, options.nodes)
            self.reader = self.experience.reader()
            share = begun // options.actors
            settings = [actor_settings(options, i, head, share) for i in range(options.actors)]
            self.nodes = RayNodes(
                self.run,
                self.publisher,
                self.experience,
                module=MODULE,
                actors=[settings[node :: options.nodes] for node in range(options.nodes)],
                reader=0,
                writers=range(options.nodes),
                address=options.ray,
                environment=ONE_THREAD,
                restarts=RESTARTS,
            )
        except BaseException:
            self.close()
            raise

    def breakdown(self) -> list[dict[str, float]]:
        """For each actor its steps and seconds, by PARTS."""
        nodes = self.options.nodes
        places = [(i % nodes, i // nodes) for i in range(self.options.actors)]
        return [parts_of(self.nodes.numbers(*place)) for place in places]
