"""Time of a learner's step in float16 beside float32, on hardware that computes in float16."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.low_precision_memory import OBSERVATIONS, World
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.rl.learn.records import record_type
from qgraph.rl.learn.replay import Batch
from qgraph.words import counted

VARIANTS = ("float32", "mixed", "all")
WARM = 2
# CPU flags. Without them and without a GPU, TensorFlow converts to float32 and back.
FLAGS = ("avx512_fp16", "amx_fp16")


def hardware() -> str:
    """The name of the hardware that computes in float16, or ""."""
    import tensorflow as tf

    for device in tf.config.list_physical_devices("GPU"):
        return str(tf.config.experimental.get_device_details(device)["device_name"])
    info = Path("/proc/cpuinfo")
    flags = info.read_text() if info.exists() else ""
    return next((flag for flag in FLAGS if flag in flags), "")


def speed(
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps in each turn.")] = 3,
    turns: Annotated[int, typer.Option(min=1, metavar="N")] = 5,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Where nothing has float16 too.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Milliseconds of a step of SAC, in turns, on hardware that computes in float16."""
    from qgraph.quiet import import_tensorflow_quietly

    import_tensorflow_quietly()
    found = hardware()
    if not found and not anyway:
        print("nothing here computes in float16: there is no speed to measure (or --anyway)")
        return
    facts = {
        name: times(World(shape), batch, steps, turns)
        for name, (shape, batch) in OBSERVATIONS.items()
    }
    table = Table(
        f"a step of SAC on {found or 'a CPU without float16'}",
        {"learner": "", "ms": ",.1f", "times quicker": ".2f"},
        notes=[
            f"median of {counted(turns, 'turn')} of {counted(steps, 'step')}, layers of 1024, "
            "batches as in `memory`"
        ],
    )
    for name, taken in facts.items():
        for how, ms in taken.items():
            table.add(f"{name}, {how}", ms, taken["float32"] / ms)
    report("benchmarks.low_precision", [table], json_file)


def times(world: World, batch: int, steps: int, turns: int) -> dict[str, float]:
    """Median milliseconds of a step, by variant, taken in turns."""
    from qgraph.rl.agents.former_names import half_settings
    from qgraph.rl.agents.sac.config import SacConfig
    from qgraph.rl.agents.sac.learner import SacLearner

    environment: Any = world
    seen, learners = batch_of(environment, batch, np.random.default_rng(0)), {}
    for how in VARIANTS:
        settings: dict[str, Any] = {
            "hidden_sizes": (1024, 1024),
            "critic_hidden_sizes": (1024, 1024),
        }
        settings |= {} if how == "float32" else half_settings(how)
        learners[how] = SacLearner(SacConfig("speed", **settings), environment)
        for _ in range(WARM):
            learners[how].step(seen)
    taken: dict[str, list[float]] = {how: [] for how in VARIANTS}
    for _ in range(turns):
        for how, learner in learners.items():
            begin = time.perf_counter()
            for _ in range(steps):
                learner.step(seen)
            taken[how].append(1e3 * (time.perf_counter() - begin) / steps)
    return {how: statistics.median(found) for how, found in taken.items()}


def batch_of(environment: Any, size: int, rng: np.random.Generator) -> Batch:
    """Random transitions."""
    records = np.zeros(size, record_type(environment))
    for name in ("observation", "next_observation"):
        shape = (size, *environment.shape)
        images = len(environment.shape) == 3
        records[name] = rng.integers(0, 256, shape) if images else rng.normal(size=shape)
    records["action"] = rng.uniform(-1, 1, records["action"].shape)
    records["reward"], records["discount"] = rng.normal(size=size), 0.99
    return Batch(records, np.arange(size), np.ones(size, np.float32))
