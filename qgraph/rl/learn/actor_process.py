"""An actor as a process: packed policies in, transitions out. It loads no framework.

python -m qgraph.rl.learn.actor_process, started by `sources.ActorProcesses` or a relay
"""

from __future__ import annotations

import time

from qgraph.rl.actor import Actor
from qgraph.rl.actor.block import at_front
from qgraph.rl.agents.registry import config_from_json
from qgraph.rl.broadcast import Member, RecordWriter, Subscriber, joined
from qgraph.rl.learn.sources import PARTS, REFUSED, ActorProcessSettings, compute_bits
from qgraph.rl.learn.worker import ActorWorker

SLICE = 0.1  # seconds of waiting for space between checks whether the run continues


def act(member: Member, settings: ActorProcessSettings) -> None:
    """Act in the environment until the run ends."""
    config = config_from_json(settings.config)
    subscriber = Subscriber(settings.policy, member, synchronous=config.synchronous)
    ring = RecordWriter.of(settings.records)
    block = subscriber.first()
    if block is None:
        return
    actor = Actor(at_front(block), compute_bits=compute_bits(config))
    use = actor.switch_program if config.compress else actor.switch

    initial_steps = settings.initial_steps

    def latest(taken: int) -> Actor:
        made = config.needed_version(taken - initial_steps)
        subscriber.check_now(use, settings.initial_version + made if made else 0)
        return actor

    # A restarted actor continues to explore and counting from the numbers of the crashed one.
    before, *seconds, waited, refused = map(float, member.numbers[: len(PARTS) + 1])
    worker = ActorWorker(config, settings.index, settings.head, latest, initial_steps + int(before))
    worker.seconds += seconds
    while member.running():
        left = worker.step()
        began = time.perf_counter()
        while len(left) and member.running():
            left = left[ring.put(left, SLICE) :]
        waited += time.perf_counter() - began
        member.numbers[: len(PARTS)] = (worker.taken - initial_steps, *worker.seconds, waited)
        member.numbers[REFUSED] = refused + subscriber.refused
    worker.close()


def main() -> None:
    with joined(ActorProcessSettings) as (member, settings):
        act(member, settings)


if __name__ == "__main__":
    main()
