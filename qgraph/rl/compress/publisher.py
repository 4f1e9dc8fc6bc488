"""The learner's end where policies are compressed on their way to actors."""

from __future__ import annotations

from qgraph.ir.types import Array
from qgraph.rl.actor import Actor
from qgraph.rl.actor.block import at_front
from qgraph.rl.broadcast import Publisher, Supervisor
from qgraph.rl.compress.chain_policy import PolicySpec
from qgraph.rl.compress.learner_notes import NoteSender
from qgraph.rl.compress.process import FAILED, MODULE, NAME
from qgraph.rl.compress.settings import Settings
from qgraph.rl.compress.worker import room_for
from qgraph.rl.monitor import LearnerFacts

RESTARTS = 3  # of a compressor that died or hung; the last good policy acts meanwhile


class CompressingPublisher(Publisher):
    """Publishes to `readers` actors what a compressor, a process of its own, makes of the weights.

    Blocks are of any program and bits, and have no critic: actors `become` them, and cut them by
    `block.at_front`.
    """

    def __init__(
        self,
        run: Supervisor,
        spec: PolicySpec,
        readers: int,
        compression: Settings,
        *,
        on_demand: bool = False,
    ) -> None:
        self._notes = NoteSender(spec.program.shape)
        more = {
            **spec.as_json(),
            "compression": compression.as_json(),
            **self._notes.settings(),
        }
        super().__init__(
            run,
            spec.program,
            readers + 1,
            on_demand=on_demand,
            name=NAME,
            module=MODULE,
            more=more,
            block_size=room_for(spec.program),
            restarts=RESTARTS,
            freed=self._ask_again,
        )
        self._own = self._blocks.reader(readers)
        self._acting: Actor | None = None

    def _ask_again(self) -> None:
        """Actors' requests are answered by the compressor."""
        self._own.ask()

    def tell(self, facts: LearnerFacts, observations: Array | None) -> None:
        """Tell the compressor facts beside the weights that are published next."""
        self._notes.send(facts, observations)

    def acting(self) -> Actor | None:
        """The newest compressed policy; None before the first."""
        found = self._own.latest()
        if found is not None:
            self._acting = Actor(at_front(found))
        return self._acting

    @property
    def failures(self) -> int:
        """How often compression failed, so that the last good policy acted on."""
        return int(self.packer_numbers[FAILED])
