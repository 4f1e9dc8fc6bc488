"""Time and memory of policies I to III of QuaRL's table 2: float32, int8, int4 and C.

    python -m benchmarks.policies_deployed [--seconds 2] [--json FILE]

Each form runs in a separate process, from its file. `memory` is the growth of the process from
before the file is opened until actions were computed. `needs` is the smallest address space
(RLIMIT_AS), beyond the process's own, in which that succeeds. `evicted` removes the file's pages
from memory before each step, so that weights are read from the disk again, as in each step of a
device whose memory is too small.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.backends.c.c_form import build, packed, write_program
from qgraph.errors import UnsupportedError
from qgraph.ir.graph import Graph
from qgraph.rl.head import Head
from qgraph.rl.policy import Policy, load_policy, pack, read_policy

INPUTS, ACTIONS = 64, 25  # Air Learning has 25 actions
POLICIES: Mapping[str, tuple[int, ...]] = {
    "I (64, 64, 64)": (64, 64, 64),
    "II (256, 256, 256)": (256, 256, 256),
    "III (4096, 512, 1024)": (4096, 512, 1024),
}
FORMS = {"float32": (32, "dynamic"), "int8": (8, "dynamic"), "int4": (4, "dynamic"),
         "static int8": (8, "static")}  # fmt: skip
GRAIN = 1 << 17  # resolution of the search for limits, in bytes


def policy_of(hidden: tuple[int, ...]) -> Graph:
    """A network of random weights with ReLU between its layers."""
    rng, graph = np.random.default_rng(0), Graph("policy")
    x, width = graph.input("observation", "float32", (None, INPUTS)), INPUTS
    for units in (*hidden, ACTIONS):
        kernel = rng.normal(0, np.sqrt(2 / width), (width, units)).astype(np.float32)
        x = graph.add("matmul", x, graph.const(kernel))
        x = graph.add("bias_add", x, graph.const(np.zeros(units, np.float32)))
        x, width = (x if units == ACTIONS else graph.add("relu", x)), units
    graph.outputs = {"action": x}
    return graph


def seen(count: int) -> Any:
    return np.random.default_rng(1).normal(size=(count, INPUTS)).astype(np.float32)


# -- in a separate process --------------------------------------------------------------------


def child(file: str, seconds: float, limit: int, evict: bool) -> dict[str, Any]:
    """Time and memory of one form; `failed` if the limit was too small for it."""
    x = seen(64)
    before, space = _memory(), _status("VmSize")
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (space + limit, space + limit))
    try:
        policy = load_policy(file)
        for row in x:
            policy(row)
        return {
            "memory": _memory() - before,
            "median": _median(policy, x, seconds, file if evict else None),
        }
    except Exception as error:  # any error can occur when memory is short
        return {"failed": f"{type(error).__name__}: {error}"}


def _median(policy: Policy, x: Any, seconds: float, evicted: str | None) -> float:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < len(x):
        if evicted:
            _evict(policy, evicted)
        start = time.perf_counter()
        policy(x[len(times) % len(x)])
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def least_space(file: Path) -> int:
    """The smallest address space in bytes that a form needs, by bisection."""
    fails, works = 0, GRAIN
    while "failed" in measured(file, 0, works):
        fails, works = works, 2 * works
    while works - fails > GRAIN:
        half = (fails + works) // 2 // GRAIN * GRAIN
        if "failed" in measured(file, 0, half):
            fails = half
        else:
            works = half
    return works


def _evict(policy: Policy, file: str) -> None:
    for section in policy.sections.values():
        base = section
        while isinstance(base.base, np.ndarray):
            base = base.base
        mapped: Any = getattr(base.base, "obj", base.base)
        if isinstance(mapped, mmap.mmap):
            mapped.madvise(mmap.MADV_DONTNEED)
    handle = os.open(file, os.O_RDONLY)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def _memory() -> int:
    return _status("VmRSS")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


# -- the table ----------------------------------------------------------------------------------


def measured(file: Path, seconds: float, limit: int = 0, evict: bool = False) -> dict[str, Any]:
    settings = json.dumps([str(file), seconds, limit, evict])
    command = [sys.executable, "-m", "benchmarks.policies_deployed", "--child", settings]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1] if done.stderr else "killed"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def in_c(policy: Policy, folder: Path) -> tuple[float, int] | None:
    """Microseconds per step of the C program, and its bytes; None without a compiler."""
    made = write_program(policy.program, folder)
    program = folder / "test"
    try:
        build(folder, made.net, program, ("-O3", "-march=native"))
    except UnsupportedError:
        return None
    (entry,) = policy.program.entries
    tensor = policy.program.tensors[entry.tensor]
    rng = np.random.default_rng(2)
    times = []
    for count in (1, 1001):
        shape = (count, *tensor.shape[1:])
        codes = rng.integers(tensor.low, tensor.high + 1, shape)
        given = packed(made, [entry.tensor], {entry.tensor: codes})
        (folder / "inputs.bin").write_bytes(given)
        times.append(min(_seconds(program, folder) for _ in range(5)))
    size = (folder / f"{made.net}.o").stat().st_size if _object(folder, made.net) else 0
    return (times[1] - times[0]) / 1000 * 1e6, size


def _seconds(program: Path, folder: Path) -> float:
    command = [str(program), str(folder / "inputs.bin"), str(folder / "answers.bin")]
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def _object(folder: Path, net: str) -> bool:
    command = ["cc", "-O3", "-c", str(folder / f"{net}.c"), "-o", str(folder / f"{net}.o")]
    return subprocess.run(command, check=False).returncode == 0


def table(seconds: float, only: str) -> Table:
    found = Table(
        "Policies I to III",
        {"policy": "", "form": "", "file, kB": ",.0f", "memory, kB": ",.0f", "step, us": ".1f",
         "times float32": ".1f", "needs, kB": ",.0f", "evicted, us": ".1f"},
        notes=[f"{INPUTS} numbers in, {ACTIONS} actions out, batch 1, one thread; medians",
               "memory: growth of the process; needs: the least address space with which it runs",
               "evicted: weights come from the disk in each step"],
    )  # fmt: skip
    for name, hidden in POLICIES.items():
        if only and only not in name:
            continue
        with tempfile.TemporaryDirectory() as place:
            _rows(found, name, hidden, Path(place), seconds)
    return found


def _rows(found: Table, name: str, hidden: tuple[int, ...], place: Path, seconds: float) -> None:
    network, floating = read_policy(policy_of(hidden)), 0.0
    files = {}
    for form, (bits, kind) in FORMS.items():
        observations = seen(512) if kind == "static" else None
        packed_form = pack(network, Head("argmax"), bits, kind, observations)
        files[form] = packed_form.write(place / f"{form}.qpol")
    for form, file in files.items():
        own = measured(file, seconds)
        # The engine of a static policy has its program in memory, not in the file.
        evicted = None if form.startswith("static") else measured(file, seconds, evict=True)
        floating = floating or own["median"]
        found.add(
            name, form, file.stat().st_size / 1e3, own["memory"] / 1e3, own["median"] * 1e6,
            floating / own["median"], least_space(file) / 1e3, evicted and evicted["median"] * 1e6,
        )  # fmt: skip
    (place / "c").mkdir()
    made = in_c(load_policy(files["static int8"]), place / "c")
    if made is not None:
        speed = floating * 1e6 / made[0]
        found.add(name, "C, static int8", made[1] / 1e3, None, made[0], speed, None, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2, help="for each time that is taken")
    parser.add_argument("--only", default="", help="policies with this in their names")
    add_json_option(parser)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(child(*json.loads(arguments.child))))
        return
    made = table(arguments.seconds, arguments.only)
    report("benchmarks.policies_deployed", [made], arguments.json)


if __name__ == "__main__":
    main()
