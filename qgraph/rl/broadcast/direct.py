"""The learner's end of a broadcast without a quantizer: the learner packs its weights."""

from __future__ import annotations

import time
from collections.abc import Mapping

from qgraph.errors import UsageError
from qgraph.foreign import Variable
from qgraph.rl.actor import ActorProgram, Packer
from qgraph.rl.broadcast.publisher import Blocks
from qgraph.rl.broadcast.weights import in_place


class DirectPublisher(Blocks):
    """Publishes weights of a program to actors, packed by the learner itself.

    Packing into few bits takes a learner on a CPU about as long as copying float32 to a quantizer
    process (docs/results/weight_update.md).

    Args:
        program: The program of the policy.
        readers: Number of actors.
        bits: Bits of weights, as in `Packer`.
        first_bits: Bits of the first layers, if they differ.
        last_bits: Bits of the last layers, if they differ.

    Attributes:
        packed: The number of blocks that were packed, and the seconds that this took.

    Examples:
        `program` and `weights` are those of the example of `qgraph.rl.actor.ActorProgram`.

        >>> from qgraph.rl.broadcast import Channel, DirectPublisher
        >>> publisher = DirectPublisher(program, readers=1, bits=8)
        >>> publisher.publish(weights, version=0)
        >>> reader = Channel.attach(publisher.settings(0).blocks, 0)
        >>> len(reader.latest()) == publisher.block_size
        True
    """

    def __init__(
        self,
        program: ActorProgram,
        readers: int,
        bits: int = 8,
        first_bits: int | None = None,
        last_bits: int | None = None,
    ) -> None:
        self._packer = Packer(program, bits, first_bits, last_bits)
        super().__init__(self._packer.size, readers)
        self._writer = self._blocks.writer()
        self.packed = (0, 0.0)

    def publish(self, weights: Mapping[str, Variable], version: int) -> None:
        """Pack and publish weights.

        Args:
            weights: Arrays or TensorFlow variables, by name.
            version: Version of the weights, larger than the last one.

        Raises:
            UsageError: The version is not larger than the last one.
            GraphError: The weights do not fit the program.
            TrainingError: A weight is not finite.
        """
        begin = time.perf_counter()
        if version <= self.version:
            raise UsageError(f"version {version} after version {self.version}: versions must grow")
        program = self._packer.program
        program.check(weights)
        values = {name: in_place(name, weights[name]) for name in program.weight_shapes}
        self._packer.pack(values, version, self._writer.next_block())
        self._writer.publish(version)
        blocks, seconds = self.packed
        self.packed = (blocks + 1, seconds + time.perf_counter() - begin)

    @property
    def version(self) -> int:
        """The latest version that was published; -1 before the first."""
        return self._writer.version
