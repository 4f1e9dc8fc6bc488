"""The state of a training run in one file, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qgraph.archives import JsonObject, parse_json, read_arrays, reading
from qgraph.errors import LoadError
from qgraph.files import write_whole
from qgraph.foreign import Variable
from qgraph.ir.types import Array
from qgraph.names import from_entry_name
from qgraph.npz import npz_bytes
from qgraph.records import from_json
from qgraph.train.record import TrainingRecord

FACTS = "facts"
VARIABLE = "variable/"
HINT = (
    "restore the file from a copy, or start a new run: `qgraph train --restart`, "
    "`qgraph rl train --out DIRECTORY`"
)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run.

    network    the hash of the graph's text
    variables  exact values by name
    facts      content of a `TrainingRecord`, in terms of JSON
    source     the file that it was read from, for errors
    """

    network: str
    variables: Mapping[str, Array]
    facts: JsonObject
    source: str | None = None

    def write(self, path: Path) -> None:
        """Replace the file at `path` in one step. Raises OutputError."""
        facts = json.dumps({"network": self.network, **self.facts}).encode()
        arrays: dict[str, Array] = {FACTS: np.frombuffer(facts, np.uint8)}
        arrays.update({VARIABLE + name: value for name, value in self.variables.items()})
        write_whole(path, npz_bytes(arrays))


def record_of(checkpoint: Checkpoint) -> TrainingRecord:
    """Options, position and scores of the run that wrote a checkpoint. Raises LoadError."""
    with reading(checkpoint.source, "its record cannot be read", HINT):
        return from_json(TrainingRecord, checkpoint.facts)


def restore(variables: Mapping[str, Variable], checkpoint: Checkpoint) -> None:
    """Assign the values of a checkpoint to `variables`, by name.

    Raises LoadError for a variable that the checkpoint lacks or has in another shape; then none has
    changed.
    """
    for name, variable in variables.items():
        value = checkpoint.variables.get(name)
        if value is None or value.shape != tuple(variable.shape):
            fault = "is missing" if value is None else f"has shape {list(value.shape)}"
            raise LoadError(
                f"variable `{name}` {fault}: the checkpoint does not fit this run",
                node=checkpoint.source,
                hint=HINT,
            )
    for name, variable in variables.items():
        variable.assign(checkpoint.variables[name])


def read_checkpoint(path: Path, network: str) -> Checkpoint:
    """Read what `Checkpoint.write` wrote.

    Raises LoadError for a file that is missing, damaged, or of another network.
    """
    problem = "is not a checkpoint that can be read"
    if not path.exists():
        raise LoadError("the checkpoint does not exist", node=str(path), hint=HINT)
    with reading(path, problem, HINT):
        arrays = read_arrays(path, problem=problem)
        facts = parse_json(arrays[FACTS].tobytes())
        variables = {
            from_entry_name(name.removeprefix(VARIABLE)): array
            for name, array in arrays.items()
            if name.startswith(VARIABLE)
        }
        found = str(facts.pop("network"))
    if found != network:
        raise LoadError(
            f"from another network: {found[:12]}, this one is {network[:12]}",
            node=str(path),
            hint=HINT,
        )
    return Checkpoint(found, variables, facts, str(path))
