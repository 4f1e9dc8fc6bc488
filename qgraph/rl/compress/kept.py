"""What students have learnt, in a file: a run that goes on has them as they were."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qgraph.files import write_whole
from qgraph.rl.compress.distill import KEPT, STUDENT
from qgraph.rl.compress.form import Memory
from qgraph.stored import part, read_arrays

FILE = "students.npz"
PLACES = "places"  # which student is of which link of which chain


def write_students(folder: Path, memories: Mapping[str, Memory]) -> None:
    """Those of all chains; no file where there are none. Raises OutputError."""
    places: list[tuple[str, int]] = []
    arrays: dict[str, Any] = {}
    for chain, memory in memories.items():
        for link, of_link in memory.items():
            state = of_link[STUDENT].state() if STUDENT in of_link else of_link.get(KEPT)
            if state is not None:
                arrays |= {f"{len(places)}/{name}": array for name, array in state.items()}
                places.append((chain, link))
    if places:
        arrays[PLACES] = np.array(json.dumps(places))
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        write_whole(folder / FILE, stream.getvalue())


def read_students(folder: Path) -> dict[str, Memory]:
    """The memory of each chain; empty where no student was kept. Raises LoadError."""
    if not (folder / FILE).exists():
        return {}
    arrays = read_arrays(folder / FILE)
    found: dict[str, Memory] = {}
    for i, (chain, link) in enumerate(json.loads(str(arrays[PLACES]))):
        found.setdefault(chain, {})[link] = {KEPT: part(arrays, str(i))}
    return found
