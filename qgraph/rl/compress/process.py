"""The compressor as a process: it takes the place of the quantizer, beside learner and actors.

python -m qgraph.rl.compress.process, started by `qgraph.rl.broadcast.publisher.Publisher`
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.member import Member, joined
from qgraph.rl.broadcast.quantizer import PACKED, SECONDS, wanted
from qgraph.rl.broadcast.weights import RunEnded, WeightReceiver
from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.compress.learner_notes import NoteReceiver
from qgraph.rl.compress.settings import Settings

NAME = "compressor"
MODULE = "qgraph.rl.compress.process"
FAILED = 2  # of the member's numbers: how often compression failed


def compress(member: Member, settings: dict[str, Any]) -> None:
    """Compress the latest weights, each time there are newer ones, until the run ends.

    One that was started in the place of another, which died, goes on from what that left.
    """
    spec = PolicySpec.from_json(settings)
    program = spec.program
    compression = Settings.from_json(settings["compression"])
    # What links import takes seconds: before the first weights it makes no policy old.
    compression.check(spec)
    blocks = Channel.open(settings["blocks"]).writer()
    acting = blocks.version >= 0
    if acting:
        compression = replace(compression, until=sys.maxsize)  # all that is in the log stays
    worker = compression.worker(spec, member.going, acting)
    weights = WeightReceiver(program, settings, member)
    notes = NoteReceiver(settings, program.shape)
    failed = member.numbers[FAILED]
    for found in wanted(member, weights, blocks, settings["on_demand"]):
        if weights.version <= blocks.version:  # as one before this published it
            continue
        begin = time.perf_counter()
        try:
            for name in program.weight_shapes:
                weights.arrived(name)
        except RunEnded:
            break
        facts, seen = notes.latest()
        block = worker.step(found, replace(facts, version=weights.version), seen)
        if block is not None:
            blocks.room()[: len(block)] = block
            blocks.publish(weights.version)
            member.numbers[PACKED] += 1
        member.numbers[SECONDS] += time.perf_counter() - begin
        member.numbers[FAILED] = failed + worker.failures
    worker.keep()


def main() -> None:
    with joined() as (member, settings):
        compress(member, settings)


if __name__ == "__main__":
    main()
