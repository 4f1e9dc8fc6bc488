"""Vectors as a form: files, and a runner of the network that the files describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from qgraph.backends.network_forms import Network, Runner
from qgraph.backends.vectors.bench import LOWERINGS
from qgraph.backends.vectors.reading import check, check_files, read_index, read_program
from qgraph.backends.vectors.writing import write_vectors
from qgraph.ir.types import Array
from qgraph.ops.lowerings import Lowerings
from qgraph.program import run


@dataclass(frozen=True)
class VectorsForm:
    """Inputs, constants, sums, shifted codes and outputs of layers, in three kinds of files.

    samples: number of calibration samples. most: largest number of codes of all runs of the network
    together. layers: names of tensors whose layers are written; all layers if empty.
    """

    name: ClassVar[str] = "vectors"
    lowerings: ClassVar[Lowerings[object]] = LOWERINGS
    samples: int = 2
    most: int = 1 << 24
    layers: tuple[str, ...] = ()

    def refusal(self, network: Network) -> str | None:
        return None

    def write(self, network: Network, folder: Path) -> None:
        write_vectors(network, folder, samples=self.samples, most=self.most, layers=self.layers)

    def renamed(self, network: Network) -> Mapping[str, str]:
        return {}  # index.json has every tensor's name beside its files

    def runner(self, network: Network, folder: Path) -> Runner:
        """Runs the steps of the index on the constants in the files, after all files are checked.

        Raises ExactnessError if a file does not match its index, LoadError.
        """
        index = read_index(folder)
        check_files(folder, index)
        program = read_program(folder, index)
        check(folder, index, program)
        names = [n for n in program.tensors if n not in program.constants]

        def answer(entries: Mapping[str, Array]) -> Mapping[str, Array]:
            return run(program, entries, names)

        return answer
