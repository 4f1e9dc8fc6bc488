"""The integer engine beside its peers: ``python -m benchmarks.engine_speed [--only NAME]``.

Times one run of whole networks, batch 1 and 32, 1 and 2 threads: the engine with two profiles,
ONNX Runtime in fp32 and in its own int8 (QDQ), LiteRT int8 and TensorFlow fp32. All start from one
float graph with its batch norms folded. Runs are interleaved, one of each in turn, and what is
reported is the median of each and its ratio to ONNX Runtime fp32.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import assets
from benchmarks.real.tables import Table
from qgraph.backends.engine import Engine
from qgraph.backends.onnx.qdq import QdqEmission
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.cli.console import console, import_tensorflow_quietly
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.passes import PassManager
from qgraph.program import Program, lower
from qgraph.quant.profile import load_profile
from qgraph.recipes import FLOAT
from qgraph.runtime import Session

Run = Callable[[], Any]
PROFILES = ("graffitist-int8", "int32-bias")
REFERENCE = "ONNX Runtime fp32"
CALIBRATION = 4


@dataclass(frozen=True)
class Subject:
    """One network: the float graph, its only input's shape, and one output to compute."""

    name: str
    graph: Graph
    shape: tuple[int, ...]
    output: str

    @property
    def input(self) -> str:
        return self.graph.inputs[0]

    def images(self, count: int) -> Array:
        rng = np.random.default_rng(0)
        return rng.uniform(-1, 1, (count, *self.shape)).astype(np.float32)


def mobilenet() -> Subject:
    output = "MobilenetV1/Predictions/Reshape"
    graph = load(assets.mobilenet_v1(), outputs=[output])
    return Subject("MobileNetV1 224", _folded(graph), (224, 224, 3), output)


def resnet() -> Subject:
    from tf_keras.applications import ResNet50

    with tempfile.TemporaryDirectory() as folder:
        ResNet50(weights=None).save(Path(folder) / "resnet50.h5")
        graph = load(Path(folder) / "resnet50.h5")
    return Subject("ResNet50", _folded(graph), (224, 224, 3), next(iter(graph.outputs)))


def cifar() -> Subject:
    graph = load(assets.cifar10_network())
    return Subject("cifar_10_model", _folded(graph), (32, 32, 3), next(iter(graph.outputs)))


SUBJECTS = {"mobilenet": mobilenet, "resnet": resnet, "cifar": cifar}


def _folded(graph: Graph) -> Graph:
    made = graph.copy()
    PassManager(FLOAT).run(made)
    return made


# -- what runs a network ----------------------------------------------------------------------


Quantized = Mapping[str, tuple[Graph, Program]]  # by profile


def quantized(subject: Subject) -> Quantized:
    found = {}
    for profile in PROFILES:
        graph = quantize(
            subject.graph, subject.images(CALIBRATION), profile=load_profile(profile),
            plan="method=max",
        ).graph  # fmt: skip
        found[profile] = (graph, lower(graph, {subject.input: (None, *subject.shape)}))
    return found


def runners(
    subject: Subject, networks: Quantized, folder: Path, batch: int, threads: int
) -> Iterator[tuple[str, Run]]:
    images = subject.images(batch)
    for profile, (graph, program) in networks.items():
        session = Session(graph, program, Engine.of(program, threads))
        yield f"engine, {profile}", partial(session.run, {subject.input: images})
    yield from _onnx_runtime(subject, networks["int32-bias"][1], folder, images, threads)
    yield "LiteRT int8", _litert(subject, folder, images, threads)
    yield "TensorFlow fp32", _tensorflow(subject, images, threads)


def _onnx_runtime(
    subject: Subject, program: Program, folder: Path, images: Array, threads: int
) -> Iterator[tuple[str, Run]]:
    import onnx
    import onnxruntime
    from onnxruntime import quantization

    fp32, int8 = str(folder / "fp32.onnx"), str(folder / "int8.onnx")
    if not Path(int8).exists():
        onnx.save(without_quantizers(QdqEmission(program).emit()), fp32)
        quantization.quantize_static(
            fp32, int8, _Reader(subject), quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8, per_channel=True,
        )  # fmt: skip
    for name, path in ((REFERENCE, fp32), ("ONNX Runtime int8", int8)):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        feeds = {session.get_inputs()[0].name: images}
        yield name, partial(session.run, None, feeds)


class _Reader:
    """Calibration samples as ONNX Runtime wants them."""

    def __init__(self, subject: Subject) -> None:
        self.rows = iter(subject.images(CALIBRATION)[:, None])
        self.name = subject.input

    def get_next(self) -> dict[str, Array] | None:
        row = next(self.rows, None)
        return None if row is None else {self.name: row}


def without_quantizers(model: Any) -> Any:
    """A QDQ model as a float one: quantizers gone, constants as the floats that they stand for."""
    from onnx import numpy_helper

    held = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    same: dict[str, str] = {}
    kept = []
    for node in model.graph.node:
        inputs = [same.get(v, v) for v in node.input]
        if node.op_type == "DequantizeLinear" and inputs[0] in held:
            codes, scale = held[inputs[0]], held[inputs[1]]
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            along = [-1 if i == axis else 1 for i in range(codes.ndim)]
            shaped = scale.reshape(along) if scale.ndim else scale
            value = codes.astype(np.float32) * shaped
            held[node.output[0]] = value
            model.graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            same[node.output[0]] = inputs[0]
        else:
            del node.input[:]
            node.input.extend(inputs)
            kept.append(node)
    made = {v for node in kept for v in node.output}
    for output in model.graph.output:
        source = same.get(output.name)
        for node in kept if source in made else ():
            renamed = [output.name if v == source else v for v in node.output]
            read = [output.name if v == source else v for v in node.input]
            del node.output[:], node.input[:]
            node.output.extend(renamed)
            node.input.extend(read)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    used = {v for node in kept for v in node.input}
    left = [i for i in model.graph.initializer if i.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(left)
    return model


def _litert(subject: Subject, folder: Path, images: Array, threads: int) -> Run:
    import tensorflow as tf

    file = folder / "int8.tflite"
    if not file.exists():
        frozen = folder / "float.pb"
        frozen.write_bytes(emit_graph_def(subject.graph).SerializeToString())
        converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(
            str(frozen), [subject.input], [subject.output], {subject.input: [1, *subject.shape]}
        )
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: (
            [row[None]] for row in subject.images(CALIBRATION)
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        file.write_bytes(converter.convert())
    interpreter = tf.lite.Interpreter(str(file), num_threads=threads)
    (entry,) = interpreter.get_input_details()
    interpreter.resize_tensor_input(entry["index"], images.shape)
    interpreter.allocate_tensors()
    output = interpreter.get_output_details()[0]["index"]

    def run() -> Any:
        interpreter.set_tensor(entry["index"], images)
        interpreter.invoke()
        return interpreter.get_tensor(output)

    return run


def _tensorflow(subject: Subject, images: Array, threads: int) -> Run:
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(emit_graph_def(subject.graph), name="")
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1,
        use_per_session_threads=True,
    )  # fmt: skip
    session = tf.compat.v1.Session(graph=graph, config=config)
    feeds = {f"{subject.input}:0": images}
    return partial(session.run, f"{subject.output}:0", feeds)


# -- the clock --------------------------------------------------------------------------------


def medians(runs: Mapping[str, Run], seconds: float) -> dict[str, float]:
    """Seconds of one run of each, interleaved, for so long; each is run once before."""
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 5:
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) for name, found in times.items()}


def main(
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(SUBJECTS)}.")] = None,
    batches: Annotated[str, typer.Option(help="Samples at once.")] = "1,32",
    threads: Annotated[str, typer.Option(help="Threads.")] = "1,2",
    seconds: Annotated[float, typer.Option(help="For each batch and number of threads.")] = 20.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Figures to a file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="The table to a file.")] = None,
) -> None:
    """Time whole networks."""
    import_tensorflow_quietly()
    columns = {"network": "", "batch": "", "threads": "", "runs by": "", "ms": ".3f"}
    table = Table("One run of whole networks", {**columns, f"of {REFERENCE}": ".2f"})
    for key in only or SUBJECTS:
        subject = SUBJECTS[key]()
        networks = quantized(subject)
        with tempfile.TemporaryDirectory() as folder:
            for batch in map(int, batches.split(",")):
                for count in map(int, threads.split(",")):
                    runs = dict(runners(subject, networks, Path(folder), batch, count))
                    taken = medians(runs, seconds)
                    for name, time_of in taken.items():
                        ratio = time_of / taken[REFERENCE]
                        table.add(subject.name, batch, count, name, time_of * 1e3, ratio)
    console().print(table.rich())
    if json_file is not None:
        json_file.write_text(json.dumps(table.to_json(), indent=1) + "\n")
    if markdown is not None:
        markdown.write_text(table.markdown() + "\n")


if __name__ == "__main__":
    typer.run(main)
