"""HDF5 files, checked in a separate process: libhdf5 loops on some damaged files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qgraph.archives import most_unpacked
from qgraph.errors import LoadError

SCRIPT = Path(__file__).with_name("hdf5_walk.py")
SECONDS = 10  # of processor time, for any file: a busy machine must not make a file seem damaged
BYTES_PER_SECOND = 10_000_000  # beyond that
PATIENCE = 12  # times the limit, in wall time
SPACE = 1 << 31  # address space of the process, in addition to twice the limit of unpacked data


@dataclass(frozen=True)
class Contents:
    """The root's attributes (None where one is not text), its members, bytes of all arrays."""

    attributes: Mapping[str, str | None]
    members: tuple[str, ...]
    size: int


def read_contents(path: Path, where: str) -> Contents:
    """Content of an HDF5 file, after all of it was read.

    Raises LoadError, naming `where`, for a file that is damaged, refers to other files, or would
    take more memory than its size explains.
    """
    size = path.stat().st_size
    most, limit = most_unpacked(size), SECONDS + size / BYTES_PER_SECOND
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(path), str(most), str(SPACE + 2 * most), str(limit)],
            env=environment,
            capture_output=True,
            timeout=PATIENCE * limit,
        )
        if done.returncode == -signal.SIGPROF:
            raise LoadError(
                f"the HDF5 library did not read it within {limit:.0f} s of processor time: "
                "it is damaged",
                node=where,
            )
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise LoadError(
            f"the HDF5 library did not read it within {PATIENCE * limit:.0f} s",
            node=where,
            hint="copy the file to a local disk, or try again when the machine is less busy",
        ) from None
    except (OSError, ValueError):  # it was killed, or memory was insufficient
        raise LoadError("the HDF5 library cannot read it: it is damaged", node=where) from None
    if "error" in found:
        raise LoadError(f"the HDF5 library cannot read it: {found['error']}", node=where)
    return Contents(found["attributes"], tuple(found["members"]), int(found["bytes"]))
