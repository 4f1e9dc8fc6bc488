"""Jobs of `before_after.py`, which use only functions that both checkouts have.

``python benchmarks/before_after_jobs.py NAME`` prints the seconds of each measurement of a job as
JSON.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qgraph.ir.graph import Graph

Seconds = dict[str, float]
NODES, LARGE = 200, 5_000


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
    runs = []
    for _ in range(6):
        gc.collect()  # otherwise a collection of all imported objects delays some of the runs
        runs.append(compile_once(graph_def)[0])
    stages = {stage: statistics.median(run[stage] for run in runs[1:]) for stage in runs[0]}
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

    def sweep(method: Any) -> None:  # the method as text, which every checkout accepts
        calibrate(graph.copy(), {"x": samples}, Calibration(method))

    methods = "max", "kl_j"
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


def _check_imports() -> None:
    """Fail if both processes would run the same code: an editable install, or a missing
    checkout.
    """
    import qgraph

    found = Path(qgraph.__file__).resolve()
    if not found.is_relative_to(Path.cwd()):
        raise SystemExit(f"qgraph is imported from {found.parent}, not from {Path.cwd()}")


JOBS: dict[str, Callable[[], Seconds]] = {
    "compile": _compile,
    "calibration": _calibration,
    "engine": _engine,
    "actor": _actor,
    "learner": _learner,
    "imports": _imports,
}

if __name__ == "__main__":
    sys.path.pop(0)  # without this folder, so that modules come from the checkout
    _check_imports()
    print(json.dumps(JOBS[sys.argv[1]]()))
