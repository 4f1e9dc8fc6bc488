"""Real runs of 1 to 8 actors on this machine, beside which the model is checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
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
    """The mean number of other processes that want a processor."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        lines = Path("/proc/stat").read_text("utf-8").splitlines()
        (running,) = (int(line.split()[1]) for line in lines if line.startswith("procs_running"))
        found.append(running - 1)
        time.sleep(0.02)
    return sum(found) / len(found)


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
