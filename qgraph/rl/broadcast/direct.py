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
    """Publishes the weights of one program to `readers` actors, packed without a copy.

    Packing into few bits takes a learner on a CPU about as long as copying float32 for a quantizer
    (docs/results/weight_update.md); on a GPU it copies in any case. bits, first_bits, last_bits: as
    in `Packer`.
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
        """Pack weights, arrays or variables.

        Raises UsageError unless versions grow, GraphError for weights that do not fit,
        TrainingError for weights that are not finite.
        """
        begin = time.perf_counter()
        if version <= self.version:
            raise UsageError(f"version {version} after version {self.version}: versions must grow")
        program = self._packer.program
        program.check(weights)
        values = {name: in_place(name, weights[name]) for name in program.weight_shapes}
        self._packer.pack(values, version, self._writer.room())
        self._writer.publish(version)
        blocks, seconds = self.packed
        self.packed = (blocks + 1, seconds + time.perf_counter() - begin)

    @property
    def version(self) -> int:
        """The latest version that was published; -1 before the first."""
        return self._writer.version
