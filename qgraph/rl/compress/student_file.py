"""The state of students in a file, from which a resumed run continues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qgraph.archives import read_arrays, reading
from qgraph.errors import LoadError
from qgraph.files import write_whole
from qgraph.ir.types import Array
from qgraph.npz import npz_bytes
from qgraph.rl.compress.chain_policy import Memory
from qgraph.rl.compress.distill import Stateful, StudentPlace
from qgraph.stored import part

FILE = "students.npz"
LINKS = "links"  # the texts of the links


def write_students(folder: Path, memory: Memory) -> None:
    """Write the students of all links; no file if there are none. Raises OutputError."""
    links: list[str] = []
    arrays: dict[str, Array] = {}
    for link, own in memory.items():
        student = own.get(StudentPlace.STUDENT)
        state = student.state() if isinstance(student, Stateful) else own.get(StudentPlace.KEPT)
        if isinstance(state, Mapping):
            arrays |= {f"{len(links)}/{name}": array for name, array in state.items()}
            links.append(link)
    if links:
        arrays[LINKS] = np.array(json.dumps(links))
        write_whole(folder / FILE, npz_bytes(arrays))


def read_students(folder: Path) -> Memory:
    """The memory of links; empty if no student was kept. Raises LoadError."""
    if not (folder / FILE).exists():
        return {}
    arrays = read_arrays(folder / FILE)
    if LINKS not in arrays:
        raise LoadError("not a file of students", node=str(folder / FILE))
    with reading(folder / FILE):
        links = json.loads(str(arrays[LINKS]))
        return {
            str(link): {StudentPlace.KEPT: part(arrays, str(i))} for i, link in enumerate(links)
        }
