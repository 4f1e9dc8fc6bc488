"""Time actors beside other tools: ``python -m benchmarks.actor_speed`` (torch, LiteRT: pip).

Each policy and batch is timed on one thread, in a separate process on one core. The other cores are
idle, or a learner runs on the next core. All tools that run a policy take turns, many times. A call
starts and ends in Python: float observations in, float outputs out, except that LiteRT takes and
returns codes. qgraph's actors compute ranges in every step; the static actor has them from
calibration, as LiteRT and ONNX Runtime's int8 do. Weights are random. Where a tool stores images as
[c, h, w], the weights behind them are not reordered, because times do not depend on their order.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.broadcast.policies import dense_policy, drawn_weights
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.ir.types import Array
from qgraph.quiet import import_tensorflow_quietly
from qgraph.rl.actor import Actor, ActorProgram, ActorStep, Packer
from qgraph.rl.actor.ops import ActorConvAttrs
from qgraph.rl.policy import pack, read_policy
from qgraph.rl.policy.file import read
from qgraph.rl.policy.static import StaticRunner

OURS = {"qgraph, int8": 8, "qgraph, int4": 4, "qgraph, float32": 32}
STATIC = "qgraph, static int8"
TORCH, TORCH_INT8 = "torch fp32", "torch dynamic int8"
ORT, ORT_INT8 = "ONNX Runtime fp32", "ONNX Runtime int8 (QDQ)"
LITERT, TF = "LiteRT int8", "TensorFlow fp32"
PEERS = (LITERT, ORT_INT8, TORCH_INT8, ORT, TORCH, TF)
BATCHES = (1, 32)
WAYS = ("alone", "with a learner")
TURNS, TURN_SECONDS, MAX_SECONDS = 41, 0.01, 60.0
CALIBRATION = 64
LEARNER_BATCH, LEARNER_SIZE = 256, 2048

Call = Callable[[], Any]
Times = dict[str, list[float]]  # microseconds a call, of each turn


def nature_cnn(outputs: int = 18) -> ActorProgram:
    """The network of the Atari papers: 84x84x4, three convolutions, 512 units."""
    steps, value = [], "observation"
    shapes: dict[str, tuple[int, ...]] = {}
    channels = 4
    for i, (size, stride, m) in enumerate(((8, 4, 32), (4, 2, 64), (3, 1, 64))):
        names = (f"kernel{i}", f"bias{i}")
        shapes |= {names[0]: (size, size, channels, m), names[1]: (m,)}
        attrs = {"activation": "relu", "strides": (stride, stride)}
        steps.append(ActorStep("conv", (value,), f"layer{i}", names, attrs))
        value, channels = f"layer{i}", m
    steps.append(ActorStep("flatten", (value,), "flat"))
    value = "flat"
    for i, (k, m) in enumerate(((7 * 7 * 64, 512), (512, outputs)), 3):
        names = (f"kernel{i}", f"bias{i}")
        shapes |= {names[0]: (k, m), names[1]: (m,)}
        attrs = {"activation": "relu" if i == 3 else "linear"}
        steps.append(ActorStep("dense", (value,), f"layer{i}", names, attrs))
        value = f"layer{i}"
    return ActorProgram((84, 84, 4), tuple(steps), (value,), shapes)


NETWORKS: Mapping[str, Callable[[], ActorProgram]] = {
    "3x2048": lambda: dense_policy((2048,) * 3),
    "2x64": lambda: dense_policy((64, 64), 8, 4),
    "3x256": lambda: dense_policy((256,) * 3, 24, 6),
    "4096,512,1024": lambda: dense_policy((4096, 512, 1024)),
    "Nature CNN": nature_cnn,
}


def observations(program: ActorProgram, count: int) -> Array:
    rng = np.random.default_rng(1)
    if len(program.shape) == 3:
        return rng.uniform(0, 1, (count, *program.shape)).astype(np.float32)
    return rng.standard_normal((count, *program.shape), np.float32)


# -- the same network in other tools --------------------------------------------------------------


def keras_model(program: ActorProgram, weights: Mapping[str, Array]) -> Any:
    import tf_keras

    layers = tf_keras.layers
    model = tf_keras.Sequential([layers.InputLayer(program.shape)])
    for step in program.steps:
        shape = program.weight_shapes[step.weights[0]] if step.weights else ()
        if step.op == "dense":
            model.add(layers.Dense(shape[-1], step.activation))
        elif step.op == "conv":
            model.add(
                layers.Conv2D(
                    shape[-1],
                    shape[:2],
                    step.attrs_as(ActorConvAttrs).strides,
                    activation=step.activation,
                )
            )
        else:
            model.add(layers.Flatten())
    model.set_weights([weights[name] for step in program.steps for name in step.weights])
    return model


def torch_model(program: ActorProgram, weights: Mapping[str, Array]) -> Any:
    """The network in PyTorch; it takes images as [n, c, h, w]."""
    import torch

    activations = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "linear": torch.nn.Identity}
    layers: list[Any] = []
    for step in program.steps:
        if not step.weights:
            layers.append(torch.nn.Flatten())
            continue
        kernel, bias = (torch.from_numpy(weights[name]) for name in step.weights)
        if step.op == "dense":
            layer: Any = torch.nn.Linear(*kernel.shape)
            turned = kernel.T
        else:
            height, width, channels, m = kernel.shape
            layer = torch.nn.Conv2d(
                channels, m, (height, width), step.attrs_as(ActorConvAttrs).strides
            )
            turned = kernel.permute(3, 2, 0, 1)
        layer.load_state_dict({"weight": turned.contiguous(), "bias": bias})
        layers += [layer, activations[step.activation]()]
    return torch.nn.Sequential(*layers).eval()


def onnx_model(program: ActorProgram, weights: Mapping[str, Array]) -> bytes:
    """The network as ONNX; it takes images as [n, c, h, w]."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = [], []
    for step in program.steps:
        made, (x,) = step.output, step.inputs
        if not step.weights:
            nodes.append(helper.make_node("Flatten", [x], [made]))
            continue
        sums = made if step.activation == "linear" else f"{made}/sums"
        kernel, bias = step.weights
        turned = weights[kernel]
        if step.op == "conv":
            turned = turned.transpose(3, 2, 0, 1)
            nodes.append(
                helper.make_node(
                    "Conv", [x, kernel, bias], [sums], strides=step.attrs_as(ActorConvAttrs).strides
                )
            )
        else:
            nodes.append(helper.make_node("Gemm", [x, kernel, bias], [sums]))
        constants.append(numpy_helper.from_array(np.ascontiguousarray(turned), kernel))
        constants.append(numpy_helper.from_array(weights[bias], bias))
        if step.activation != "linear":
            nodes.append(helper.make_node(step.activation.capitalize(), [sums], [made]))
    *size, channels = program.shape
    value = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    inputs = [value(program.observation, shape=["n", channels, *size])]
    outputs = [value(program.outputs[0], shape=None)]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def prepare(name: str, folder: Path) -> None:
    """Write the files of the tools that read files."""
    from benchmarks.peers.litert import full_integer
    from benchmarks.peers.onnx_runtime import quantized
    from qgraph.frontends import load

    program = NETWORKS[name]()
    keras_model(program, drawn_weights(program)).save(folder / "model.keras")
    model, samples = load(folder / "model.keras"), observations(program, CALIBRATION)
    plain = onnx_model(program, drawn_weights(program))
    (folder / "fp32.onnx").write_bytes(plain)
    (folder / "int8.onnx").write_bytes(quantized(plain, samples, 1, per_channel=True))
    static = pack(read_policy(model), None, 8, "static", samples)
    static.write(folder / "static.qpol")
    for batch in BATCHES:
        (folder / f"int8-{batch}.tflite").write_bytes(full_integer(model, samples, batch))


def calls(name: str, batch: int, prepared: Path) -> dict[str, Call]:
    """The calls to time, by tool."""
    import tensorflow as tf

    from benchmarks.peers.litert import LiteRT
    from benchmarks.peers.onnx_runtime import OnnxRuntime

    program = NETWORKS[name]()
    weights, x = drawn_weights(program), observations(program, batch)
    found: dict[str, Call] = {}
    for who, bits in OURS.items():
        actor = Actor(Packer(program, bits).pack(weights))
        found[who] = partial(actor, x)
    static = StaticRunner(read(prepared / "static.qpol"))
    found[STATIC] = partial(static.run, x)
    turned = np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if x.ndim == 4 else x
    litert = LiteRT((prepared / f"int8-{batch}.tflite").read_bytes(), 1)
    codes = litert.codes(x)
    found[LITERT] = lambda: litert.run(codes)
    for who, kind in ((ORT, "fp32"), (ORT_INT8, "int8")):
        session = OnnxRuntime((prepared / f"{kind}.onnx").read_bytes(), 1)
        found[who] = partial(session.run_nchw, turned)
    if importlib.util.find_spec("torch") is not None:
        found |= _torch_calls(program, weights, turned)
    function = tf.function(keras_model(program, weights))
    found[TF] = lambda: function(x).numpy()
    return found


def _torch_calls(
    program: ActorProgram, weights: Mapping[str, Array], x: Array
) -> Mapping[str, Call]:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # its quantizer moves to another package
    plain = torch_model(program, weights)
    quantize: Any = torch.ao.quantization.quantize_dynamic
    dynamic = quantize(plain, {torch.nn.Linear}, dtype=torch.qint8)

    def call(model: Any) -> Any:
        with torch.inference_mode():
            return model(torch.from_numpy(x)).numpy()

    return {TORCH: lambda: call(plain), TORCH_INT8: lambda: call(dynamic)}


# -- one policy and batch, in a separate process ------------------------------------------------


def measure(name: str, batch: int, prepared: Path) -> Times:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return turns(calls(name, batch, prepared))


def turns(contestants: Mapping[Any, Call]) -> dict[Any, list[float]]:
    """Microseconds per call, in turns: each tool is called in every turn, one after the other."""
    times: dict[Any, list[float]] = {who: [] for who in contestants}
    often = {}
    for who, call in contestants.items():
        took = min(_timed(call, 1) for _ in range(5)) / 1e6
        often[who] = max(1, round(TURN_SECONDS / took))
    start = time.perf_counter()
    for _ in range(TURNS):
        for who, call in contestants.items():
            call()  # fill the caches with this tool's data
            times[who].append(_timed(call, often[who]))
        if time.perf_counter() - start >= MAX_SECONDS:
            break
    return times


def _timed(call: Call, runs: int) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        call()
    return (time.perf_counter() - start) / runs * 1e6


def learn() -> None:
    """Use the caches as a learner does: products of batches, and Adam on all weights."""
    rng = np.random.default_rng(0)
    size = (LEARNER_SIZE, LEARNER_SIZE)
    w, mean, square = rng.standard_normal(size, np.float32), np.zeros(size), np.ones(size)
    x = rng.standard_normal((LEARNER_BATCH, LEARNER_SIZE), np.float32)
    while True:
        y = np.maximum(x @ w, 0)
        gradient = x.T @ y
        mean += 0.1 * (gradient - mean)
        square += 0.001 * (gradient * gradient - square)
        w -= (1e-9 * mean / np.sqrt(square)).astype(np.float32)


@contextmanager
def learner(core: int | None) -> Iterator[None]:
    """Run a learner on a core during the block."""
    if core is None:
        yield
        return
    process = _start(core, "--learner")
    try:
        time.sleep(2)  # until the learner has started
        yield
    finally:
        process.kill()
        process.wait()


def _start(core: int, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.actor_speed", "--core", str(core), *arguments]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(command, env={**os.environ, **one})


def _apart(name: str, batch: int, prepared: Path, core: int) -> Times:
    to = prepared / "times.json"
    process = _start(core, "--child", json.dumps([name, batch, str(prepared), str(to)]))
    if process.wait():
        raise SystemExit(f"timing {name} failed")
    found: Times = json.loads(to.read_text("utf-8"))
    return found


# -- tables -------------------------------------------------------------------------------------


def speeds(found: Mapping[tuple[str, str, int], Times]) -> Table:
    """A row for each policy, tool and batch, alone and beside a learner."""
    table = Table(
        "A step of an actor",
        {"network": "", "runtime": "", "beside": "", "batch": "d", "us an observation": ".3g",
         "best peer's time over it": ".2f"},
        notes=[f"medians of up to {TURNS} turns, one thread; the ratio is of the same turn"],
    )  # fmt: skip
    for (name, way, batch), times in found.items():
        best = np.min([np.array(times[peer]) for peer in PEERS if peer in times], 0)
        for who in (who for who in (*OURS, STATIC, *PEERS) if who in times):
            ratio = float(np.median(best / np.array(times[who])))
            table.add(name, who, way, batch, float(np.median(times[who])) / batch, ratio)
    return table


def sizes(names: Iterable[str]) -> Table:
    """Bytes of a packed policy."""
    table = Table("MB of a block", {"network": "", "runtime": "", "MB": ".2f"})
    for name in names:
        program = NETWORKS[name]()
        for who, bits in OURS.items():
            table.add(name, who, Packer(program, bits).size / 1e6)
    return table


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"One of {'; '.join(NETWORKS)}. May be repeated.")
    ] = None,
    json_file: JsonFile = None,
    child: Annotated[str | None, typer.Option(hidden=True)] = None,
    learner_at_work: Annotated[bool, typer.Option("--learner", hidden=True)] = False,
    core: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Time the policies and print their tables."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if core is not None:
        os.sched_setaffinity(0, {core})
    if learner_at_work:
        return learn()
    import_tensorflow_quietly()
    if child is not None:
        name, batch, folder, to = json.loads(child)
        Path(to).write_text(json.dumps(measure(name, batch, Path(folder))), "utf-8")
        return
    cores = sorted(os.sched_getaffinity(0))
    names = list(only or NETWORKS)
    timed: dict[tuple[str, str, int], Times] = {}
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            prepare(name, Path(scratch))
            for way in WAYS if len(cores) > 1 else WAYS[:1]:
                with learner(cores[1] if way == WAYS[1] else None):
                    for batch in BATCHES:
                        timed[name, way, batch] = _apart(name, batch, Path(scratch), cores[0])
    tables = [speeds(timed), sizes(names)]
    report("benchmarks.actor_speed", tables, json_file, packages=("torch", "onnxruntime"))


if __name__ == "__main__":
    typer.run(main)
