"""The state of a training run in one file, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qgraph.archives import parse_json, read_arrays, reading
from qgraph.errors import LoadError
from qgraph.files import write_whole
from qgraph.ir.types import Array
from qgraph.names import from_entry_name
from qgraph.npz import npz_bytes
from qgraph.records import from_json
from qgraph.train.record import TrainingRecord

FACTS = "facts"
VARIABLE = "variable/"


@dataclass(frozen=True)
class Checkpoint:
    """`variables` by name, exact; `facts` as JSON has them. `network` is the hash of the graph."""

    network: str
    variables: Mapping[str, Array]
    facts: Mapping[str, Any]

    def write(self, path: Path) -> None:
        """Replace `path`, which holds the old state or the new one at any moment.

        Raises OutputError.
        """
        facts = json.dumps({"network": self.network, **self.facts}).encode()
        arrays: dict[str, Array] = {FACTS: np.frombuffer(facts, np.uint8)}
        arrays.update({VARIABLE + name: value for name, value in self.variables.items()})
        write_whole(path, npz_bytes(arrays))


def record_of(checkpoint: Checkpoint) -> TrainingRecord:
    """How the run of a checkpoint went. Raises LoadError."""
    with reading(None, "its record cannot be read", "remove the checkpoint"):
        return from_json(TrainingRecord, checkpoint.facts)


def read_checkpoint(path: Path, network: str) -> Checkpoint:
    """Raises LoadError for a file that is not a checkpoint, or is one of another network."""
    problem, hint = "is not a checkpoint that can be read", "remove it, or go back to another one"
    with reading(path, problem, hint):
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
            hint="remove it, or start again with --restart",
        )
    return Checkpoint(found, variables, facts)
