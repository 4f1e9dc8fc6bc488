"""The learner's end: weights in, packed blocks for all actors out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from qgraph.errors import UsageError
from qgraph.rl.actor import ActorProgram, Packer
from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.quantizer import PACKED, SECONDS
from qgraph.rl.broadcast.supervisor import Supervisor
from qgraph.rl.broadcast.weights import WeightSender

NAME = "quantizer"
MODULE = "qgraph.rl.broadcast.quantizer"


class Blocks:
    """The place of packed blocks of at most `block_size` bytes for `readers` actors.

    published: the channel whose version says what the learner has published. on_demand: whether
    actors have to ask for a block.
    """

    def __init__(
        self, block_size: int, readers: int, *, published: str = "", on_demand: bool = False
    ) -> None:
        self.block_size = block_size
        self.on_demand = on_demand
        self._blocks = Channel.create(block_size, readers)
        self._published = published or self._blocks.name

    @property
    def packed_version(self) -> int:
        """The latest that is packed, and that actors can have; -1 before the first."""
        return self._blocks.writer().version

    def settings(self, reader: int) -> dict[str, Any]:
        """The argument of the `Subscriber` of actor number `reader`, as JSON."""
        if not 0 <= reader < self._blocks.readers:
            raise UsageError(f"actor {reader} of a publisher for {self._blocks.readers}")
        return {
            "blocks": self._blocks.name,
            "weights": self._published,
            "reader": reader,
            "on_demand": self.on_demand,
        }

    def freed(self, reader: int) -> None:
        """An actor is gone: give back the block that it held."""
        self._blocks.clear(reader)


class Publisher(Blocks):
    """Publishes the weights of one program to `readers` actors, by a quantizer of its own.

    bits, first_bits, last_bits: as `Packer` has them. on_demand: blocks are packed when an actor
    asks for one, not for each `publish`. A dead quantizer shows in `run.check()`.

    name, module, more, block_size, restarts, freed: of a process that packs otherwise, such as a
    compressor; its settings beside those of the quantizer, the bytes that its blocks have at most,
    how often it is started again, and what is called before.
    """

    def __init__(
        self,
        run: Supervisor,
        program: ActorProgram,
        readers: int,
        *,
        bits: int = 8,
        first_bits: int | None = None,
        last_bits: int | None = None,
        on_demand: bool = False,
        name: str = NAME,
        module: str = MODULE,
        more: Mapping[str, Any] = MappingProxyType({}),
        block_size: int | None = None,
        restarts: int = 0,
        freed: Callable[[], None] | None = None,
    ) -> None:
        self._run = run
        self._sender = WeightSender(program)
        super().__init__(
            block_size or Packer(program, bits, first_bits, last_bits).size,
            readers,
            published=self._sender.settings()["weights"],
            on_demand=on_demand,
        )
        settings = {
            "program": program.as_json(),
            "bits": bits,
            "first_bits": first_bits,
            "last_bits": last_bits,
            "on_demand": on_demand,
            "blocks": self._blocks.name,
            **self._sender.settings(),
            **more,
        }
        self._name = name
        run.start(name, module, settings, restarts=restarts, freed=freed)

    def publish(self, weights: Mapping[str, Any], version: int) -> None:
        """Hand over a copy of the weights, arrays or variables; waits for nobody.

        The quantizer takes the latest it finds, so that versions may be passed over. Raises
        UsageError unless versions grow, GraphError for weights that do not fit.
        """
        self._sender.send(weights, version)

    @property
    def version(self) -> int:
        """The latest that was published; -1 before the first."""
        return self._sender.version

    @property
    def packed(self) -> tuple[int, float]:
        """Blocks that the quantizer packed, and the seconds that this took."""
        numbers = self.packer_numbers
        return int(numbers[PACKED]), float(numbers[SECONDS])

    @property
    def packer_numbers(self) -> Any:
        """The numbers of the process that packs (`Member.numbers`), float64 [8]."""
        return self._run.numbers(self._name)
