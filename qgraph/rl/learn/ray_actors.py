"""Actors on other machines, through Ray: the same processes with the same records."""

from __future__ import annotations

from qgraph.rl.broadcast import Experience, Publisher, Supervisor
from qgraph.rl.broadcast.ray import RayNodes
from qgraph.rl.learn.sources import (
    MODULE,
    ONE_THREAD,
    RESTARTS,
    ActorProcesses,
    Job,
    packed_bits,
    parts_of,
    ring_capacity,
)


class RayActors(ActorProcesses):
    """Actor i is on node i % nodes; all actors of a node share one ring of the learner."""

    def __init__(self, job: Job) -> None:
        self.config = config = job.config
        self.run = Supervisor(processes=config.actors + 2)
        try:
            program = job.spec.program
            bits = packed_bits(config, program)
            self.publisher = Publisher(self.run, program, 1, *bits, on_demand=config.on_demand)
            capacity = ring_capacity(config, job.dtype.itemsize, config.nodes)
            self.experience = Experience.create(job.dtype, capacity, config.nodes)
            self.reader = self.experience.reader()
            settings = [job.actor_settings(index) for index in range(config.actors)]
            self.nodes = RayNodes(
                self.run,
                self.publisher,
                self.experience,
                module=MODULE,
                actors=[settings[node :: config.nodes] for node in range(config.nodes)],
                reader=0,
                writers=range(config.nodes),
                address=config.ray,
                environment=ONE_THREAD,
                restarts=RESTARTS,
            )
        except BaseException:
            self.close()
            raise

    def breakdown(self) -> list[dict[str, float]]:
        """Steps and seconds of each actor, by PARTS."""
        nodes = self.config.nodes
        places = [(i % nodes, i // nodes) for i in range(self.config.actors)]
        return [parts_of(self.nodes.numbers(*place)) for place in places]

    def warnings(self) -> list[str]:
        count = self.nodes.crashes
        return super().warnings() + ([f"{count} remote actors were restarted"] if count else [])
