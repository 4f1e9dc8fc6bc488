"""Measurements as data: `--json FILE` of every script writes a `Result`.

Files in `benchmarks/results/` are committed; the tables and figures of `docs/results/` are made
from them (`benchmarks/topics/`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from benchmarks.tables import Table
from qgraph.records import JSON, from_json, to_json

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
MEASURED = "measured"
PRODUCT = ("qgraph", "transforms", "cli", "fused_ops")
PACKAGES = (
    "numpy", "tensorflow", "tf-keras", "onnx", "onnxruntime", "torch", "gymnasium",
    "stable-baselines3", "tensorflow-model-optimization", "ray", "qonnx", "ai-edge-litert",
    "tflite-micro",
)  # fmt: skip
INSTRUCTIONS = {"avx2": "AVX2", "avx512_vnni": "AVX-512 VNNI", "amx_int8": "AMX"}
OPTION, HELP = "--json", "Write the tables to FILE, with the commit, the machine and versions."

JsonFile: TypeAlias = Annotated[Path | None, typer.Option(OPTION, metavar="FILE", help=HELP)]


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Give a parser the option `json`, as `JsonFile` does for Typer."""
    parser.add_argument(OPTION, metavar="FILE", type=Path, help=HELP)


@dataclass(frozen=True)
class Machine:
    """The processor; `load` is the mean number of running processes in the last minute."""

    processor: str
    cores: int
    instructions: tuple[str, ...] = ()
    load: float | None = None


@dataclass(frozen=True)
class Result:
    """The tables of one run of a benchmark, and the conditions of the run.

    `source` is `measured`, or names the page from which the tables were transcribed. `seeds` are
    those of the runs that the tables compare; empty if nothing is random.
    """

    command: str
    commit: str
    date: str
    machine: Machine
    versions: Mapping[str, str]
    seeds: tuple[int, ...]
    tables: tuple[Table, ...]
    source: str = MEASURED
    remarks: tuple[str, ...] = ()

    def table(self, title: str) -> Table:
        """The first table whose title begins with `title`."""
        for table in self.tables:
            if table.title.startswith(title):
                return table
        raise KeyError(f"no table `{title}`: there are {[t.title for t in self.tables]}")

    def write(self, file: Path) -> None:
        """Write the result as JSON, with each row of a table in one line."""
        file.write_text(_text(to_json(self)) + "\n", "utf-8")


def report(
    module: str,
    tables: Iterable[Table],
    file: Path | None,
    seeds: Iterable[int] = (),
    packages: Iterable[str] = (),
) -> None:
    """Print each table as soon as it is made, and write all of them to `file` if it is given.

    packages: distributions that other processes of the benchmark import.
    """
    done = []
    for table in tables:
        table.show()
        done.append(table)
        if file is not None:
            measured(module, done, seeds, packages).write(file)


def measured(
    module: str, tables: Iterable[Table], seeds: Iterable[int] = (), packages: Iterable[str] = ()
) -> Result:
    """The tables of a benchmark that has just run: `python -m module` with this process's
    arguments.
    """
    used = [name for name in PACKAGES if name in packages or _module(name) in sys.modules]
    return Result(
        command=command(module, sys.argv[1:]),
        commit=commit(),
        date=date.today().isoformat(),
        machine=machine(),
        versions={"python": platform.python_version(), **versions(used)},
        seeds=tuple(seeds),
        tables=tuple(tables),
    )


def read(name: str, folder: Path = RESULTS) -> Result:
    """Read a committed result by its name."""
    data = json.loads((folder / f"{name}.json").read_text("utf-8"))
    tables = tuple(Table(**table) for table in data["tables"])
    return replace(from_json(Result, {**data, "tables": []}), tables=tables)


def command(module: str, arguments: Iterable[str]) -> str:
    """The command line of a benchmark, without the option for its JSON file.

    Absolute paths, which only this machine has, are their last part.
    """
    kept, left = [], iter(arguments)
    for argument in left:
        if argument == OPTION:
            next(left, None)
        elif not argument.startswith(f"{OPTION}="):
            kept.append(Path(argument).name if Path(argument).is_absolute() else argument)
    return shlex.join(["python", "-m", module, *kept])


def commit(*more: str) -> str:
    """The last commit that changed the product, with a mark if the working tree has changes.

    more: files and folders that count in addition to the product.
    """
    paths = (*PRODUCT, *more)
    found = _git("log", "-1", "--format=%h", "--abbrev=10", "--", *paths)
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", *paths)
    return f"{found}-dirty" if changed else found


def _git(*arguments: str) -> str:
    said = ["git", *arguments]
    return subprocess.run(said, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def machine() -> Machine:
    """The machine that this process runs on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    pairs = (line.partition(":")[::2] for line in lines)
    found = {key.strip(): value.strip() for key, value in pairs}
    flags = found.get("flags", "").split()
    return Machine(
        processor=found.get("model name", platform.machine()),
        cores=len(os.sched_getaffinity(0)),
        instructions=tuple(name for flag, name in INSTRUCTIONS.items() if flag in flags),
        load=round(os.getloadavg()[0], 1),
    )


def _module(package: str) -> str:
    return package.replace("-", "_")


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of the packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _text(data: JSON, indent: str = "") -> str:
    """`data` as JSON; an object or list of plain values and numbers takes one line."""
    if isinstance(data, Mapping) and any(map(_is_deep, data.values())):
        inner = f"{indent} "
        entries = [f"{json.dumps(k)}: {_text(v, inner)}" for k, v in data.items()]
        return _block("{", entries, "}", indent)
    if isinstance(data, list) and any(map(_is_deep, data)):
        return _block("[", [_text(v, f"{indent} ") for v in data], "]", indent)
    return json.dumps(data, ensure_ascii=False)


def _is_deep(value: JSON) -> bool:
    """Whether a value is more than a plain one or a list of numbers."""
    if isinstance(value, list):
        return not all(isinstance(entry, int | float) for entry in value)
    return isinstance(value, Mapping)


def _block(begin: str, entries: Iterable[str], end: str, indent: str) -> str:
    inner = f",\n{indent} ".join(entries)
    return f"{begin}\n{indent} {inner}\n{indent}{end}"
