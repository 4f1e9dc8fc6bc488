"""Measure results again: ``python -m benchmarks.measure [NAME ...]``, or ``make measure``.

A name is that of a file in `benchmarks/results/`. The command in the file runs, and its output
replaces the file if the page can be made from it. Without names, the times are measured that were
transcribed from older pages. They need a machine without other load.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.result import MEASURED, OPTION, RESULTS, ROOT, read
from benchmarks.topics.site import TOPICS
from benchmarks.topics.topic import generated

# Times, in the order of measurement: the short ones first.
TIMED = (
    "transport", "actor_time", "more_actors", "weight_update", "policies_deployed",
    "compression_networks", "quantizer", "training_step", "actor_speed", "engine_speed",
)  # fmt: skip
PEERS = "torch", "zmq", "ray", "tensorflow_model_optimization"

Run = Callable[[Sequence[str]], int]


def transcribed() -> list[str]:
    """Results of `TIMED` that were not written by a script of this repository."""
    return [name for name in TIMED if read(name).source != MEASURED]


def run(command: Sequence[str]) -> int:
    """Run a benchmark with this Python, from the root of the repository."""
    return subprocess.run([sys.executable, *command[1:]], cwd=ROOT).returncode


def measure(name: str, folder: Path = RESULTS, run: Run = run) -> str:
    """Run the command of a result and replace its file. Return the error, or ""."""
    with tempfile.TemporaryDirectory() as scratch:
        new = Path(scratch) / f"{name}.json"
        code = run([*shlex.split(read(name, folder).command), OPTION, str(new)])
        if code or not new.exists():
            return f"the command ended with exit code {code}"
        (topic,) = (topic for topic in TOPICS if topic.name == name)
        try:
            found = read(name, new.parent)
            generated(topic, found)
            topic.headline(found)
            topic.figure(found)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            return f"its page cannot be made from the new data: {error!r}"
        (folder / new.name).write_text(new.read_text("utf-8"), "utf-8")
    return ""


def main(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Default: times not yet measured.")
    ] = None,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="Start no further result after so long.")
    ] = float("inf"),
    list_only: Annotated[bool, typer.Option("--list", help="Print the commands only.")] = False,
) -> None:
    """Measure results again, one after the other."""
    chosen = names or transcribed()
    if list_only:
        for name in chosen:
            print(f"{name}: {read(name).command}")
        return
    failed, begin = {}, time.perf_counter()
    for number, name in enumerate(chosen, 1):
        if time.perf_counter() - begin > budget:
            failed[name] = "the budget was used up"
            continue
        print(f"[{number}/{len(chosen)}] {name}: load {os.getloadavg()[0]:.1f}", flush=True)
        start = time.perf_counter()
        wrong = measure(name)
        print(f"{name}: {wrong or 'measured'} ({time.perf_counter() - start:.0f} s)", flush=True)
        if wrong:
            failed[name] = wrong
    for name, wrong in failed.items():
        print(f"{name} is as before: {wrong}; peers that some need: {', '.join(PEERS)}")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    typer.run(main)
