"""The learner's end of the broadcast: weights in, packed blocks for all actors out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from qgraph.errors import UsageError
from qgraph.foreign import Variable
from qgraph.ir.types import Array
from qgraph.rl.actor import ActorProgram, Packer
from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.quantizer import MODULE, PACKED, SECONDS, QuantizerSettings
from qgraph.rl.broadcast.subscriber import BlockSource
from qgraph.rl.broadcast.supervisor import Supervisor
from qgraph.rl.broadcast.weights import WeightSender


class Blocks:
    """The channel of packed blocks, each of at most `block_size` bytes, for `readers` actors.

    published: the channel whose version is the latest that the learner has published. on_demand:
    whether actors have to request a block.
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
        """The latest version that is packed and available to actors; -1 before the first."""
        return self._blocks.writer().version

    def settings(self, reader: int) -> BlockSource:
        """The settings of the `Subscriber` of actor number `reader`."""
        if not 0 <= reader < self._blocks.readers:
            raise UsageError(
                f"actor {reader} does not exist: the publisher has {self._blocks.readers} readers"
            )
        return BlockSource(self._blocks.name, self._published, reader, self.on_demand)

    def release(self, reader: int) -> None:
        """Release the block of an actor that has ended."""
        self._blocks.clear(reader)


class ProcessPublisher(Blocks):
    """Base of publishers whose weights are packed by another process of the run.

    If that process dies, `run.check()` reports it. Subclasses call `_start` with its settings.
    """

    process_name: ClassVar[str]
    module: ClassVar[str]

    def __init__(
        self,
        run: Supervisor,
        program: ActorProgram,
        readers: int,
        block_size: int,
        *,
        on_demand: bool = False,
    ) -> None:
        self._run = run
        self._sender = WeightSender(program)
        published = self._sender.channels.weights
        super().__init__(block_size, readers, published=published, on_demand=on_demand)

    def _start(
        self, settings: object, *, restarts: int = 0, on_release: Callable[[], None] | None = None
    ) -> None:
        self._run.start(
            self.process_name, self.module, settings, restarts=restarts, on_release=on_release
        )

    def publish(self, weights: Mapping[str, Variable], version: int) -> None:
        """Hand over a copy of the weights, arrays or variables, without waiting.

        The process takes the latest weights, so it may skip versions. Raises UsageError unless
        versions grow, GraphError for weights that do not fit.
        """
        self._sender.send(weights, version)

    @property
    def version(self) -> int:
        """The latest version that was published; -1 before the first."""
        return self._sender.version

    @property
    def packed(self) -> tuple[int, float]:
        """The number of blocks that the process packed, and the seconds that this took."""
        numbers = self.packer_numbers
        return int(numbers[PACKED]), float(numbers[SECONDS])

    @property
    def packer_numbers(self) -> Array:
        """The numbers of the process (`Member.numbers`), float64 [8]."""
        return self._run.numbers(self.process_name)


class Publisher(ProcessPublisher):
    """Publishes weights of a program to actors, packed by a separate quantizer process.

    Args:
        run: The supervisor that starts the quantizer.
        program: The program of the policy.
        readers: Number of actors.
        bits: Bits of weights, as in `Packer`.
        first_bits: Bits of the first layers, if they differ.
        last_bits: Bits of the last layers, if they differ.
        on_demand: Pack a block when an actor requests it, instead of after each `publish`.

    Examples:
        `program` and `weights` are those of the example of `qgraph.rl.actor.ActorProgram`.

        >>> from qgraph.rl.broadcast import Publisher, Supervisor
        >>> with Supervisor(processes=1) as run:
        ...     publisher = Publisher(run, program, readers=1, bits=8)
        ...     publisher.publish(weights, version=0)
        ...     publisher.version
        0
    """

    process_name = "quantizer"
    module = MODULE

    def __init__(
        self,
        run: Supervisor,
        program: ActorProgram,
        readers: int,
        bits: int = 8,
        first_bits: int | None = None,
        last_bits: int | None = None,
        *,
        on_demand: bool = False,
    ) -> None:
        size = Packer(program, bits, first_bits, last_bits).size
        super().__init__(run, program, readers, size, on_demand=on_demand)
        self._start(
            QuantizerSettings(
                program.as_json(),
                bits,
                first_bits,
                last_bits,
                on_demand,
                self._blocks.name,
                self._sender.channels,
            )
        )
