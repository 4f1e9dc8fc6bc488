"""Compare the speed of two checkouts: ``python -m benchmarks.before_after OLD [NEW]``.

Each job runs in a process of its own, with the code of one checkout, in turns: old, new, old, new.
A process repeats its job and reports the median; the table has the median of these medians, their
range, and the ratio new / old. Networks are made up, so that both run the same one. A checkout
needs its native library in `qgraph/` or in its own `.venv`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from qgraph.ir.graph import Graph

Seconds = dict[str, float]
NODES, LARGE = 200, 5_000
NEW = Path(__file__).resolve().parents[1]


def main(
    old: Annotated[Path, typer.Argument(help="Checkout to compare with.")],
    new: Annotated[Path, typer.Argument(help="Checkout that is measured.")] = NEW,
    rounds: Annotated[int, typer.Option(help="Processes of each checkout for each job.")] = 5,
    jobs: Annotated[list[str] | None, typer.Option("--job", help="Jobs; all by default.")] = None,
    json_: Annotated[Path | None, typer.Option("--json", help="File for all figures.")] = None,
) -> None:
    """Measure both checkouts in turns and print a table."""
    found: dict[str, dict[str, list[float]]] = {}
    for job in jobs or list(JOBS):
        for _ in range(rounds):
            for name, tree in (("old", old), ("new", new)):
                for figure, seconds in _measured(tree.resolve(), job).items():
                    times = found.setdefault(figure, {"old": [], "new": []})
                    times[name].append(seconds)
    columns = ("figure", "old ms", "range", "new ms", "range", "new / old")
    table = Table(*columns, title=f"medians of {rounds} processes")
    for figure, both in found.items():
        medians = {name: statistics.median(times) for name, times in both.items()}
        cells = [
            cell
            for name, times in both.items()
            for cell in (f"{medians[name] * 1e3:.4g}", _range(times))
        ]
        table.add_row(figure, *cells, f"{medians['new'] / medians['old']:.3f}")
    Console().print(table)
    if json_:
        json_.write_text(json.dumps(found, indent=1))


def _range(times: list[float]) -> str:
    return f"{min(times) * 1e3:.4g} to {max(times) * 1e3:.4g}"


def _measured(tree: Path, job: str) -> Seconds:
    python = tree / ".venv/bin/python"
    command = [str(python) if python.exists() else sys.executable, __file__, "--run", job]
    environment = {**os.environ, "PYTHONPATH": str(tree), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, env=environment, cwd=tree, check=True, stdout=subprocess.PIPE, text=True
    )
    measured: Seconds = json.loads(done.stdout.splitlines()[-1])
    return measured


# -- jobs: only what both checkouts have -----------------------------------------------------------


def _median(run: Callable[[], object], repeats: int) -> float:
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _compile() -> Seconds:
    from benchmarks.compile_time import chain, compile_once

    graph_def = chain(LARGE)
    runs = [compile_once(graph_def)[0] for _ in range(4)][1:]
    stages = {stage: statistics.median(run[stage] for run in runs) for stage in runs[0]}
    return {f"compile {LARGE:,} nodes, {stage}": seconds for stage, seconds in stages.items()}


def _network() -> Graph:
    """A chain of residual blocks with quantizers, not calibrated."""
    from benchmarks.compile_time import chain
    from qgraph.frontends import load_graph_def
    from qgraph.passes import PassManager
    from qgraph.quant.profile import load_profile
    from qgraph.recipes import FLOAT, insert

    graph = load_graph_def(chain(NODES))
    PassManager(FLOAT).run(graph)
    PassManager(insert(load_profile("graffitist-int8"))).run(graph)
    return graph


def _calibration() -> Seconds:
    import numpy as np

    from qgraph.quant.calibrate import Calibration, calibrate

    graph = _network()
    samples = np.random.default_rng(0).standard_normal((16, 8, 8, 4)).astype(np.float32)

    def sweep(method: str) -> None:
        calibrate(graph.copy(), {"x": samples}, Calibration(method))

    methods = ("max", "kl_j")
    return {f"calibrate {NODES} nodes, {m}": _median(partial(sweep, m), 3) for m in methods}


def _engine() -> Seconds:
    import numpy as np

    from benchmarks.compile_time import assume_exponents
    from qgraph.backends.engine.engine import Engine
    from qgraph.program import lower

    graph = _network()
    assume_exponents(graph)
    program = lower(graph)
    engine = Engine.of(program)
    (entry,) = program.entries
    codes = np.random.default_rng(1).integers(0, 100, (1, 8, 8, 4))
    feeds = {entry.tensor: codes.astype(program.tensors[entry.tensor].storage)}
    return {
        f"lower {NODES} nodes to a program": _median(lambda: lower(graph), 5),
        f"engine, {len(program.steps)} steps": _median(lambda: engine.run_codes(feeds), 200),
    }


def _actor() -> Seconds:
    import numpy as np

    from benchmarks.broadcast.policies import dense_policy, drawn_weights
    from qgraph.rl.actor import Actor, Packer

    program = dense_policy((256,) * 3)
    weights = drawn_weights(program)
    packer = Packer(program, 8)
    actor = Actor(packer.pack(weights))
    one = np.random.default_rng(2).standard_normal((1, *program.shape)).astype(np.float32)
    return {
        "pack 3x256, int8": _median(lambda: packer.pack(weights), 50),
        "actor 3x256, int8, one observation": _median(lambda: actor(one), 2_000),
    }


def _learner() -> Seconds:
    import numpy as np

    from benchmarks.low_precision_memory import World
    from benchmarks.low_precision_speed import batch_of
    from qgraph.rl.agents import config_for
    from qgraph.rl.agents.registry import learner_for

    found: Seconds = {}
    world: Any = World((24,))
    batch = batch_of(world, 256, np.random.default_rng(3))
    for algorithm in ("sac", "td3", "d4pg"):
        learner = learner_for(config_for(algorithm, "made-up"), world)
        found[f"learner step, {algorithm}"] = _median(partial(learner.step, batch), 100)
    return found


def _imports() -> Seconds:
    command = [sys.executable, "-c", "import qgraph.cli.main"]
    return {"import the command line": _median(lambda: subprocess.run(command, check=True), 5)}


JOBS: dict[str, Callable[[], Seconds]] = {
    "compile": _compile,
    "calibration": _calibration,
    "engine": _engine,
    "actor": _actor,
    "learner": _learner,
    "imports": _imports,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        sys.path.pop(0)  # this folder: the checkout's own modules count
        print(json.dumps(JOBS[sys.argv[2]]()))
    else:
        typer.run(main)
