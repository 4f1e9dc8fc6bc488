"""The learner's end of a broadcast with a compressor."""

from __future__ import annotations

from qgraph.ir.types import Array
from qgraph.rl.actor import Actor
from qgraph.rl.actor.block import at_front
from qgraph.rl.broadcast.publisher import ProcessPublisher
from qgraph.rl.broadcast.supervisor import Supervisor
from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.compress.learner_messages import MessageSender
from qgraph.rl.compress.process import FAILED, MODULE, NAME, CompressorSettings
from qgraph.rl.compress.settings import Settings
from qgraph.rl.compress.worker import max_block_size
from qgraph.rl.monitor import LearnerFacts

RESTARTS = 3  # of a compressor that dies or hangs; the last good policy acts meanwhile


class CompressingPublisher(ProcessPublisher):
    """Publishes compressed policies to `readers` actors, through a compressor process.

    Blocks can have any program and bits, and lack the critic. Actors use them by
    `Actor.switch_program`.
    """

    process_name = NAME
    module = MODULE

    def __init__(
        self,
        run: Supervisor,
        spec: PolicySpec,
        readers: int,
        compression: Settings,
        *,
        on_demand: bool = False,
    ) -> None:
        size = max_block_size(spec.program)
        super().__init__(run, spec.program, readers + 1, size, on_demand=on_demand)
        self._messages = MessageSender(spec.program.shape)
        self._own = self._blocks.reader(readers)
        self._actor: Actor | None = None
        settings = CompressorSettings(
            spec.program.as_json(),
            spec.head,
            spec.critic,
            compression,
            on_demand,
            self._blocks.name,
            self._sender.channels,
            self._messages.channel,
        )
        # A restarted compressor does not know who had asked for a block.
        self._start(settings, restarts=RESTARTS, on_release=self._own.request)

    def send(self, facts: LearnerFacts, observations: Array | None) -> None:
        """Give the compressor facts and observations beside the next weights."""
        self._messages.send(facts, observations)

    def compressed_actor(self) -> Actor | None:
        """The newest compressed policy; None before the first."""
        block = self._own.latest()
        if block is not None:
            self._actor = Actor(at_front(block))
        return self._actor

    @property
    def failures(self) -> int:
        """How often compression failed, so that actors kept the last good policy."""
        return int(self.packer_numbers[FAILED])
