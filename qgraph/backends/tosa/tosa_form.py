"""TOSA as a form of a network: write the files, and run them in the reference model."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from qgraph.archives import read_json, reading
from qgraph.backends.io_names import is_program_alone, left_to_the_host
from qgraph.backends.network_forms import Network, Runner, refusal_by
from qgraph.backends.tosa.emission import TosaEmission
from qgraph.backends.tosa.graph_builder import StoredAs
from qgraph.backends.tosa.lowering import LOWERINGS
from qgraph.backends.tosa.tosa_file import NUMPY_TYPES, TosaType
from qgraph.backends.tosa.tosa_tools import (
    reference_model,
    reference_model_title,
    required_reference_model,
    validate,
)
from qgraph.backends.vela import write_estimates
from qgraph.ir.types import Array, Codes, Exponent
from qgraph.ops.lowerings import Lowerings
from qgraph.program import Program
from qgraph.program.run import batch_of
from qgraph.records import from_json, to_json

FILE, PORTS = "network.tosa", "network.json"


@dataclass(frozen=True)
class TosaPort:
    """An input or output of a file.

    name: its name in the file. tensor: its name in the network. A code is the stored number minus
    `zero_point`, and is in `low..high`. It represents `code * 2^-exponent`.
    """

    name: str
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    zero_point: int
    low: int
    high: int
    exponent: Exponent

    @property
    def stored(self) -> StoredAs:
        return StoredAs(TosaType[self.dtype.upper()], self.zero_point)


@dataclass(frozen=True)
class TosaPorts:
    """The content of `network.json`."""

    inputs: tuple[TosaPort, ...]
    outputs: tuple[TosaPort, ...]


@dataclass(frozen=True)
class WrittenTosa:
    """A program as a file: its bytes, and its inputs and outputs."""

    data: bytes
    ports: TosaPorts


@dataclass(frozen=True)
class TosaForm:
    """A flatbuffer of integer ops for one sample, and a description of its inputs and outputs.

    accelerators: names of Arm Ethos-U accelerators that Vela compiles the file for; its estimates
    are written to `vela.json`.
    """

    name: ClassVar[str] = "tosa"
    lowerings: ClassVar[Lowerings[object]] = LOWERINGS
    accelerators: tuple[str, ...] = ()

    def refusal(self, network: Network) -> str | None:
        return refusal_by(TosaEmission(network.program, LOWERINGS).emit)

    def write(self, network: Network, folder: Path) -> None:
        made = written(network.program)
        (folder / FILE).write_bytes(made.data)
        (folder / PORTS).write_text(json.dumps(to_json(made.ports), indent=1) + "\n", "utf-8")
        write_estimates(folder / FILE, self.accelerators)

    def renamed(self, network: Network) -> Mapping[str, str]:
        ports = written(network.program).ports
        return {p.tensor: p.name for p in (*ports.inputs, *ports.outputs) if p.tensor != p.name}

    def warnings(self, network: Network) -> list[str]:
        """Report float ops, which are not in the file."""
        if is_program_alone(network):
            return []
        return [left_to_the_host(port.name for port in written(network.program).ports.outputs)]

    def executor(self) -> str:
        return reference_model_title()

    def runner(self, network: Network, folder: Path) -> Runner:
        """Validate the file, and run it for each sample in the reference model. A copy for all
        samples has all tensors as outputs.

        Raises UnsupportedError if the reference model is not installed, ExactnessError if the file
        is not valid.
        """
        required_reference_model()
        validate(folder / FILE)
        with reading(folder / PORTS):
            ports = from_json(TosaPorts, read_json(folder / PORTS))

        def run(entries: Mapping[str, Array]) -> dict[str, Codes]:
            batch = batch_of(network.program, entries)
            copy = written(network.program, batch, inner=True)
            with tempfile.TemporaryDirectory(prefix="qgraph-") as place:
                path = Path(place, FILE)
                path.write_bytes(copy.data)
                inner = run_file(path, copy.ports, entries)
            if not network.program.batch_free:
                return {**inner, **run_file(folder / FILE, ports, entries)}
            samples = [
                run_file(folder / FILE, ports, {n: c[i : i + 1] for n, c in entries.items()})
                for i in range(batch)
            ]
            exits = {n: np.concatenate([s[n] for s in samples]) for n in network.program.exits}
            return {**inner, **exits}

        return run


def written(program: Program, batch: int = 1, *, inner: bool = False) -> WrittenTosa:
    """A program as a file.

    Args:
        program: The program.
        batch: Number of samples; 1 if the batch is not free.
        inner: Whether every tensor that the file computes is an output, not only exits.

    Returns:
        The file.

    Raises:
        UnsupportedError: TOSA lacks an op, or the numbers do not fit. The error names the tensor.
    """
    emission = TosaEmission(program, LOWERINGS, batch)
    model = emission.emit()
    inputs = tuple(
        _port(emission, entry.tensor, *_first(emission, entry.tensor)) for entry in program.entries
    )
    ends = dict.fromkeys(program.exits)
    if inner:
        ends |= dict.fromkeys(step.output for step in program.steps)
    outputs = []
    for name in ends:
        if name in emission.held or name in program.constants:
            stored, value = _first(emission, name)
            outputs.append(_port(emission, name, stored, model.output(value)))
    data = model.network().serialized()
    return WrittenTosa(data, TosaPorts(inputs, tuple(outputs)))


def run_file(path: Path, ports: TosaPorts, entries: Mapping[str, Array]) -> dict[str, Codes]:
    """Codes of the outputs of a file, by tensor, from codes of its inputs."""
    given = {p.name: p.stored.numbers(entries[p.tensor]) for p in ports.inputs}
    found = reference_model(path, given, [p.name for p in ports.outputs])
    return {p.tensor: found[p.name].astype(np.int64) - p.zero_point for p in ports.outputs}


def _first(emission: TosaEmission, name: str) -> tuple[StoredAs, str]:
    stored = emission.held_as(name)
    return stored, emission.get(name, stored)


def _port(emission: TosaEmission, name: str, stored: StoredAs, value: str) -> TosaPort:
    tensor = emission.tensors[name]
    return TosaPort(
        value,
        name,
        np.dtype(NUMPY_TYPES[stored.dtype]).name,
        emission.shape(name),
        stored.zero,
        tensor.low,
        tensor.high,
        tensor.exponent,
    )
