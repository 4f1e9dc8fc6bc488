"""The compressor as a process of a run, instead of the quantizer.

python -m qgraph.rl.compress.process, started by `publisher.CompressingPublisher`
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from qgraph.rl.actor import ActorProgram
from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.member import Member, joined
from qgraph.rl.broadcast.quantizer import PACKED, SECONDS, wanted
from qgraph.rl.broadcast.weights import RunEnded, WeightChannels, WeightReceiver
from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.compress.learner_messages import MessageReceiver
from qgraph.rl.compress.settings import Settings
from qgraph.rl.head import Head

NAME = "compressor"
MODULE = "qgraph.rl.compress.process"
FAILED = 2  # place in the member's numbers: how often compression failed


@dataclass(frozen=True)
class CompressorSettings:
    """The settings of the process: program (JSON), head and critic of a policy, and channels."""

    program: Mapping[str, object]
    head: Head
    critic: str
    compression: Settings
    on_demand: bool
    blocks: str
    weights: WeightChannels
    messages: str


def compress(member: Member, settings: CompressorSettings) -> None:
    """Compress the latest weights whenever there are newer ones, until the run ends.

    A process that replaces a dead one continues from its log and its students.
    """
    program, compression = ActorProgram.from_json(settings.program), settings.compression
    spec = PolicySpec(program, settings.head, settings.critic)
    # The imports of links take seconds; before the first weights they delay no policy.
    compression.check(spec)
    blocks = Channel.open(settings.blocks).writer()
    has_policy = blocks.version >= 0
    if has_policy:
        compression = replace(compression, until=sys.maxsize)  # keep the whole log
    worker = compression.worker(spec, member.running, has_policy)
    weights = WeightReceiver(program, settings.weights, member)
    messages = MessageReceiver(settings.messages, program.shape)
    failed = member.numbers[FAILED]
    for latest in wanted(member, weights, blocks, settings.on_demand):
        if weights.version <= blocks.version:  # the process before this one published it
            continue
        begin = time.perf_counter()
        try:
            for name in program.weight_shapes:
                weights.arrived(name)
        except RunEnded:
            break
        facts, observations = messages.latest()
        block = worker.step(latest, replace(facts, version=weights.version), observations)
        if block is not None:
            blocks.next_block()[: len(block)] = block
            blocks.publish(weights.version)
            member.numbers[PACKED] += 1
        member.numbers[SECONDS] += time.perf_counter() - begin
        member.numbers[FAILED] = failed + worker.failures
    worker.keep()


def main() -> None:
    with joined(CompressorSettings) as (member, settings):
        compress(member, settings)


if __name__ == "__main__":
    main()
