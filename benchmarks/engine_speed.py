"""Time inference beside other tools: ``python -m benchmarks.engine_speed``.

All tools that run a network take turns, with a few calls each time. A ratio is to ONNX Runtime fp32
in the same turn. The table has wall time and the processor time of all threads, which other
programs disturb less; with two threads processor time is less meaningful, because some tools wait
actively. Each network, batch and number of threads has a separate process, because TensorFlow reads
its number of threads only once. Integer networks are timed from codes to codes, except ONNX
Runtime's, whose QDQ files take and return floats.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import assets
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table, merged
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.quiet import import_tensorflow_quietly
from qgraph.runtime import Engine
from qgraph.stored import load_network

PROFILES = ("graffitist-int8", "int32-bias")
FLOAT_ORT, INT8_ORT = "ONNX Runtime fp32", "ONNX Runtime int8 (QDQ, u8s8)"
INT8_LITERT, FLOAT_TF = "LiteRT int8", "TensorFlow fp32"
ENGINES = {profile: f"integer engine, {profile}" for profile in PROFILES}
CONTESTANTS = (FLOAT_ORT, INT8_ORT, INT8_LITERT, FLOAT_TF, *ENGINES.values())
BATCHES, THREADS = (1, 32), (1, 2)
TURNS, MIN_TURNS, SECONDS = 15, 5, 30.0  # fewer than TURNS after this many seconds
WARM_UP, TURN_SECONDS = 2, 0.1
CALIBRATION = 32
SLOWEST = 12

Call = Callable[[], Any]
Times = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class Network:
    """A network: how to load it with inputs [batch, *shape], and the range of its inputs."""

    load: Callable[[], Graph]
    shape: tuple[int, int, int]
    low: float
    high: float
    plan: str

    def images(self, count: int) -> Array:
        """Smooth noise, which keeps all layers active."""
        small = (count, self.shape[0] // 8, self.shape[1] // 8, self.shape[2])
        noise = np.random.default_rng(0).uniform(self.low, self.high, small)
        return noise.repeat(8, axis=1).repeat(8, axis=2).astype(np.float32)


def _mobilenet() -> Graph:
    from benchmarks.real.mobilenet import LOGITS
    from qgraph.frontends import load

    shape = {"input": (None, 224, 224, 3)}
    return load(assets.mobilenet_v1(), outputs=[LOGITS], input_shapes=shape)


def _resnet50() -> Graph:
    import tf_keras

    from qgraph.frontends import load

    tf_keras.utils.set_random_seed(0)
    network = tf_keras.applications.ResNet50(weights=None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.h5"
        network.save(path)
        return load(path)


def _cifar() -> Graph:
    from qgraph.frontends import load

    return load(assets.cifar10_network())


NETWORKS: Mapping[str, Network] = {
    "MobileNetV1 224": Network(
        _mobilenet, (224, 224, 3), -1, 1, "constant-channels=0.1,method=mse"
    ),
    "ResNet50": Network(_resnet50, (224, 224, 3), 0, 255, "plain"),
    "cifar_10_model": Network(_cifar, (32, 32, 3), 0, 255, "equalize=biases,method=mse"),
}


# -- one network, batch and number of threads, in a separate process --------------------------


def _calls(name: str, batch: int, threads: int, prepared: Path) -> dict[str, Call]:
    """The calls to time, by tool, after a warm-up."""
    from benchmarks.peers.litert import LiteRT
    from benchmarks.peers.onnx_runtime import OnnxRuntime
    from qgraph.backends.tf.emit import emit_graph_def
    from qgraph.backends.tf.program import TFProgram

    network = NETWORKS[name]
    model, x = network.load(), network.images(batch)
    ((input_name,), (output,)) = model.inputs, list(model.outputs)
    turned = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    fp32, int8 = (
        OnnxRuntime((prepared / f"{kind}.onnx").read_bytes(), threads) for kind in ("fp32", "int8")
    )
    litert = LiteRT((prepared / f"int8-{batch}.tflite").read_bytes(), threads)
    codes = litert.codes(x)
    program = TFProgram(emit_graph_def(model))
    calls: dict[str, Call] = {
        FLOAT_ORT: lambda: fp32.run_nchw(turned),
        INT8_ORT: lambda: int8.run_nchw(turned),
        INT8_LITERT: lambda: litert.run(codes),
        FLOAT_TF: lambda: program.run({input_name: x}, [output]),
    }
    for profile, title in ENGINES.items():
        engine = _engine(prepared, profile, threads)
        tensor = engine.tensors[engine.entries[0]]
        drawn = np.random.default_rng(0).integers(tensor.low, tensor.high + 1, x.shape)
        calls[title] = partial(engine.run_codes, {tensor.name: drawn.astype(tensor.dtype)})
    return calls


def _engine(prepared: Path, profile: str, threads: int) -> Engine:
    return Engine.of(load_network(prepared / profile).program, threads)


def prepare(name: str, folder: Path) -> None:
    """Write the files of all tools."""
    from benchmarks.peers.float_onnx import float_onnx
    from benchmarks.peers.litert import full_integer
    from benchmarks.peers.onnx_runtime import quantized
    from qgraph.compiler import quantize

    network = NETWORKS[name]
    model, images = network.load(), network.images(CALIBRATION)
    plain = float_onnx(model)
    (folder / "fp32.onnx").write_bytes(plain)
    (folder / "int8.onnx").write_bytes(quantized(plain, images, 1, per_channel=True))
    for batch in BATCHES:
        (folder / f"int8-{batch}.tflite").write_bytes(full_integer(model, images, batch))
    for profile in PROFILES:
        quantize(model, images, plan=network.plan, profile=profile).save(folder / profile)


def measure(name: str, batch: int, threads: int, prepared: Path) -> Times:
    """Milliseconds per call in each turn, for each tool: wall time and processor time."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    calls = _calls(name, batch, threads, prepared)
    times: Times = {contestant: [] for contestant in calls}
    often: dict[str, int] = {}
    for contestant, call in calls.items():
        took = min(_timed(call, 1)[0] for _ in range(WARM_UP)) / 1000
        often[contestant] = max(1, round(TURN_SECONDS / took))
    start = time.perf_counter()
    for turn in range(TURNS):
        if turn >= MIN_TURNS and time.perf_counter() - start > SECONDS:
            break
        for contestant, call in calls.items():
            call()  # fill the caches with this tool's data
            times[contestant].append(_timed(call, often[contestant]))
    return times


def _timed(call: Call, runs: int) -> tuple[float, float]:
    start, busy = time.perf_counter(), time.process_time()
    for _ in range(runs):
        call()
    ends = time.perf_counter() - start, time.process_time() - busy
    return 1000 * ends[0] / runs, 1000 * ends[1] / runs


# -- tables -------------------------------------------------------------------------------------


COLUMNS = {
    "network": "", "runtime": "", "batch": "d", "threads": "d", "ms": ".3g", "ratio": ".2f",
    "lower quartile": ".2f", "upper quartile": ".2f", "processor ratio": ".2f",
}  # fmt: skip


def speeds(found: Mapping[tuple[str, int, int], Times]) -> Table:
    """A row for each network, tool, batch and number of threads."""
    table = Table(
        "Time of a call",
        COLUMNS,
        notes=[
            f"medians of {MIN_TURNS} to {TURNS} turns; ratio to {FLOAT_ORT} in the same turn, "
            "with its quartiles, then that of processor time"
        ],
    )
    for (name, batch, threads), times in found.items():
        for runtime in CONTESTANTS:
            own, base = (np.array(times[who]).T for who in (runtime, FLOAT_ORT))
            ratio, busy = own / base
            low, middle, high = np.percentile(ratio, (25, 50, 75))
            numbers = (float(np.median(own[0])), middle, low, high, float(np.median(busy)))
            table.add(name, runtime, batch, threads, *(round(float(x), 4) for x in numbers))
    return table


def layers(name: str, prepared: Path) -> Table:
    """The slowest calls of the engine, with one thread and one sample."""
    rows = _engine(prepared, PROFILES[0], 1).profile(1, 20)
    whole = sum(seconds for _, seconds in rows)
    table = Table(name, {"call": "", "us": ".0f", "share": ".1%"})
    kinds: dict[str, float] = {}
    for what, seconds in rows:
        kind = what.rsplit(": ", 1)[1]
        kinds[kind] = kinds.get(kind, 0.0) + seconds
    for what, seconds in sorted(rows, key=lambda row: -row[1])[:SLOWEST]:
        table.add(what, 1e6 * seconds, seconds / whole)
    shares = (f"{kind} {s / whole:.0%}" for kind, s in sorted(kinds.items(), key=lambda k: -k[1]))
    table.notes += [
        f"{name}: batch 1, 1 thread; {len(rows)} calls, {1000 * whole:.2f} ms",
        f"{name}: by kind: {', '.join(shares)}",
    ]
    return table


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(NETWORKS)}; may be repeated.")
    ] = None,
    json_file: JsonFile = None,
    child: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Time the networks and print their tables."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import_tensorflow_quietly()
    if child is not None:
        name, batch, threads, folder, to = json.loads(child)
        done = measure(name, batch, threads, Path(folder))
        Path(to).write_text(json.dumps(done), "utf-8")
        return
    found: dict[tuple[str, int, int], Times] = {}
    parts = []
    for name in only or NETWORKS:
        with tempfile.TemporaryDirectory() as scratch:
            prepare(name, Path(scratch))
            for batch, threads in itertools.product(BATCHES, THREADS):
                found[name, batch, threads] = _apart(name, batch, threads, Path(scratch))
            parts.append((name, layers(name, Path(scratch))))
    where = merged(f"Where the time of {PROFILES[0]} goes", "network", parts)
    report("benchmarks.engine_speed", [speeds(found), where], json_file, seeds=(0,))


def _apart(name: str, batch: int, threads: int, prepared: Path) -> Times:
    to = prepared / f"times-{threads}.json"
    child = json.dumps([name, batch, threads, str(prepared), str(to)])
    command = [sys.executable, "-m", "benchmarks.engine_speed", "--child", child]
    subprocess.run(command, check=True)
    found: Times = json.loads(to.read_text("utf-8"))
    return found


if __name__ == "__main__":
    typer.run(main)
