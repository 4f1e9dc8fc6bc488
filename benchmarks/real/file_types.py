"""Magika, which finds the type of a file, on files of this machine, by effort."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import assets
from benchmarks.real.by_effort import BY_EFFORT, Experiment, Way, by_effort
from benchmarks.real.measure import same_class
from benchmarks.tables import Table
from qgraph.choices import Effort
from qgraph.ir.types import Array

# Magika reads the first and the last bytes of a file, without white space around it.
BYTES, BLOCK, MISSING = 1024, 4096, 256
SMALLEST = 64  # bytes; magika takes shorter files for text or for nothing
FOLDERS = ("/usr/include", "/usr/lib/x86_64-linux-gnu", "/usr/share")
OF_A_SUFFIX = 12
CALIBRATION, TEST = 512, 1024
WIDE = "tflm-int16x8"


def tables() -> Iterator[Table]:
    ways = (*BY_EFFORT, Way(Effort.DEFAULT, WIDE))
    table = by_effort("Types of files", experiments(), ways)
    table.notes.append(f"{WIDE}: weights of 8 bits, activations of 16")
    yield table


def experiments() -> Iterator[Experiment]:
    found = features([*files()])
    calibration, test = found[:CALIBRATION], found[CALIBRATION : CALIBRATION + TEST]
    yield Experiment(
        "magika", assets.file_type_network, calibration, test, same_class,
        "files with the same answer", "files of this machine",
    )  # fmt: skip


def more_features(count: int) -> Array:
    """Features of at most `count` files that calibration and test do not use."""
    used = features([*files()])[: CALIBRATION + TEST]
    known = {row.tobytes() for row in used}
    others = features([*files(of_a_suffix=10 * OF_A_SUFFIX, seed=1)])
    return np.stack([row for row in others if row.tobytes() not in known][:count])


def files(of_a_suffix: int = OF_A_SUFFIX, seed: int = 0) -> Iterator[Path]:
    """Files of Python, of its packages and of the system in random order, some of each suffix."""
    rng = np.random.default_rng(seed)
    paths = sysconfig.get_paths()
    by_suffix: dict[str, list[Path]] = {}
    for folder in dict.fromkeys((paths["stdlib"], paths["purelib"], *FOLDERS)):
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size >= SMALLEST:
                by_suffix.setdefault(path.suffix.lower(), []).append(path)
    chosen = [
        same[i]
        for _, same in sorted(by_suffix.items())
        for i in rng.choice(len(same), min(len(same), of_a_suffix), replace=False)
    ]
    yield from (chosen[i] for i in rng.permutation(len(chosen)))


def features(paths: list[Path]) -> Array:
    """The bytes of each file that magika reads, without repetitions, int32 [n, 2048]."""
    made = np.stack([_bytes(path.read_bytes()) for path in paths])
    _, first = np.unique(made, axis=0, return_index=True)
    return made[np.sort(first)]


def _bytes(content: bytes) -> Array:
    head = content[:BLOCK].lstrip()[:BYTES]
    tail = content[-BLOCK:].rstrip()[-BYTES:]
    made = np.full(2 * BYTES, MISSING, np.int32)
    made[: len(head)] = np.frombuffer(head, np.uint8)
    made[2 * BYTES - len(tail) :] = np.frombuffer(tail, np.uint8)
    return made
