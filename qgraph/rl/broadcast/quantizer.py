"""The quantizer: a process that packs a learner's weights for the actors.

python -m qgraph.rl.broadcast.quantizer, started by `publisher.Publisher`
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, Packer
from qgraph.rl.broadcast.channel import Channel, Writer
from qgraph.rl.broadcast.member import Member, joined
from qgraph.rl.broadcast.weights import RunEnded, WeightReceiver

PACKED, SECONDS = 0, 1  # of the member's numbers: blocks so far, seconds spent on them


def quantize(member: Member, settings: dict[str, Any]) -> None:
    """Pack the latest weights, each time there are newer ones, until the run ends."""
    program = ActorProgram.from_json(settings["program"])
    packer = Packer(program, settings["bits"], settings["first_bits"], settings["last_bits"])
    weights = WeightReceiver(program, settings, member)
    blocks = Channel.open(settings["blocks"]).writer()
    for found in wanted(member, weights, blocks, settings["on_demand"]):
        begin = time.perf_counter()
        with suppress(RunEnded):
            packer.pack(found, weights.version, blocks.room(), weights.arrived)
            blocks.publish(weights.version)
        member.numbers[PACKED] += 1
        member.numbers[SECONDS] += time.perf_counter() - begin


def wanted(
    member: Member, weights: WeightReceiver, blocks: Writer, on_demand: bool
) -> Iterator[dict[str, Array]]:
    """The latest weights, each time there are newer ones, until the run ends; those that come
    meanwhile are passed over. on_demand: only when an actor has asked for a block.
    """
    while weights.wait():
        if on_demand:
            if not member.wait(blocks.wait_asked):
                return
            blocks.asked()
        yield weights.take()


def main() -> None:
    with joined() as (member, settings):
        quantize(member, settings)


if __name__ == "__main__":
    main()
