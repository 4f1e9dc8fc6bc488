"""Real runs of 1 to 8 actors on this machine, beside which the model is checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.rl_model.costs import config_of

WARM = 0.25  # share of the steps that do not count
MODULE = "benchmarks.rl_model.real_runs"


def steps_a_second(bits: int, actors: int, steps: int) -> float:
    """The rate of a run, in its own process."""
    command = [sys.executable, "-m", MODULE, *map(str, (bits, actors, steps))]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(found.stdout.splitlines()[-1]))


def busy_processes(seconds: float = 3.0) -> float:
    """The mean number of other processes that want a processor, without those of lower priority,
    which leave it to this one.
    """
    found, end = [], time.monotonic() + seconds
    own, niceness = os.getpid(), os.getpriority(os.PRIO_PROCESS, 0)
    while time.monotonic() < end:
        found.append(sum(nice <= niceness for pid, nice in _running() if pid != own))
        time.sleep(0.05)
    return sum(found) / len(found)


def _running() -> Iterator[tuple[int, int]]:
    """The identifier and the niceness of each process that runs or waits for a processor."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            state, *fields = file.read_text("utf-8").rpartition(") ")[2].split()
            if state == "R":
                yield int(file.parent.name), int(fields[15])


def _rate(bits: int, actors: int, steps: int) -> float:
    from qgraph.rl.learn.runs import train

    times: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        train(
            Path(folder, "run"),
            config=config_of(bits, actors, steps),
            threads=1,
            device="cpu",
            tick=lambda done, all_steps: times.append((time.monotonic(), done)),
        )
    counted = [(at, done) for at, done in times if done > WARM * steps]
    (begin, first), (end, last) = counted[0], counted[-1]
    return (last - first) / (end - begin)


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    print(json.dumps(_rate(*map(int, sys.argv[1:]))))
