"""The quantizer: a process that packs a learner's weights for the actors.

python -m qgraph.rl.broadcast.quantizer, started by `publisher.Publisher`
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, Packer
from qgraph.rl.broadcast.channel import Channel, Writer
from qgraph.rl.broadcast.member import Member, joined
from qgraph.rl.broadcast.weights import RunEnded, WeightChannels, WeightReceiver

MODULE = "qgraph.rl.broadcast.quantizer"
PACKED, SECONDS = 0, 1  # places in the member's numbers: blocks so far, seconds spent on them


@dataclass(frozen=True)
class QuantizerSettings:
    """The settings of the process: a program (JSON), bits as in `Packer`, and channels."""

    program: Mapping[str, object]
    bits: int
    first_bits: int | None
    last_bits: int | None
    on_demand: bool
    blocks: str
    weights: WeightChannels


def quantize(member: Member, settings: QuantizerSettings) -> None:
    """Pack the latest weights whenever there are newer ones, until the run ends."""
    program = ActorProgram.from_json(settings.program)
    packer = Packer(program, settings.bits, settings.first_bits, settings.last_bits)
    weights = WeightReceiver(program, settings.weights, member)
    blocks = Channel.open(settings.blocks).writer()
    for latest in wanted(member, weights, blocks, settings.on_demand):
        begin = time.perf_counter()
        with suppress(RunEnded):
            packer.pack(latest, weights.version, blocks.next_block(), weights.arrived)
            blocks.publish(weights.version)
        member.numbers[PACKED] += 1
        member.numbers[SECONDS] += time.perf_counter() - begin


def wanted(
    member: Member, weights: WeightReceiver, blocks: Writer, on_demand: bool
) -> Iterator[dict[str, Array]]:
    """The latest weights whenever there are newer ones, until the run ends.

    Weights that arrive while others are packed are skipped. on_demand: only if an actor has asked
    for a block.
    """
    while weights.wait():
        if on_demand:
            if not member.wait(blocks.wait_requested):
                return
            blocks.requested()
        yield weights.take()


def main() -> None:
    with joined(QuantizerSettings) as (member, settings):
        quantize(member, settings)


if __name__ == "__main__":
    main()
