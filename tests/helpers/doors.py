"""All functions that read files, valid files for each, and a process that damages these files.

    python -m tests.helpers.doors pb,keras3 0 300  # seeds 0 to 299

For any file, each reader ends soon and in little memory, with a result or with an error of the
tree.
"""

from __future__ import annotations

import faulthandler
import io
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from qgraph.errors import QGraphError
from tests.helpers.damage import limit_space, too_long
from tests.helpers.file_damage import Files, damaged

SECONDS = 30  # for one mutant


@dataclass(frozen=True)
class Door:
    """`write` puts valid files into a folder; `enter` reads the files there."""

    write: Callable[[Path], object]
    enter: Callable[[Path], object]

    def sound(self) -> Files:
        with tempfile.TemporaryDirectory() as folder:
            self.write(Path(folder))
            files = (p for p in sorted(Path(folder).rglob("*")) if p.is_file())
            return {str(p.relative_to(folder)): p.read_bytes() for p in files}


# -- networks ------------------------------------------------------------------------------------

SHAPE = (6, 6, 2)


def images(count: int = 8) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, *SHAPE)).astype("float32")


def model(K: Any) -> Any:
    K.utils.set_random_seed(0)
    layers = K.layers
    x = K.Input(SHAPE, name="x")
    y = layers.BatchNormalization()(layers.Conv2D(3, 3, activation="relu")(x))
    y = layers.TimeDistributed(layers.Dense(2))(layers.MaxPooling2D(2)(y))
    return K.Model(x, layers.Dense(3, activation="softmax", name="y")(layers.Flatten()(y)))


@cache
def quantized(mode: str = "static") -> Any:
    import tf_keras

    from qgraph.compiler import quantize

    return quantize(model(tf_keras), images(), effort="plain", mode=mode)


@cache
def network(folder: str) -> Any:
    from qgraph.stored import load_network

    return load_network(folder)


def policy(folder: Path, form: str) -> None:
    import tf_keras

    from qgraph.rl.policy import pack, read_policy

    K = tf_keras
    K.utils.set_random_seed(0)
    x = K.Input((4,), name="x")
    y = K.layers.Dense(2, name="y")(K.layers.Dense(8, activation="relu")(x))
    from qgraph.frontends import load_keras

    seen = np.random.default_rng(0).standard_normal((64, 4)).astype("float32")
    read = read_policy(load_keras(K.Model(x, y)))
    pack(read, None, 8, form, seen).write(folder / "p.qpol")


def frozen(folder: Path, text: bool) -> None:
    import tensorflow as tf
    import tf_keras

    from qgraph.frontends.keras import freeze_model

    graph_def = freeze_model(model(tf_keras)).graph_def
    name = "m.pbtxt" if text else "m.pb"
    tf.io.write_graph(graph_def, str(folder), name, as_text=text)


def checkpoint(folder: Path) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder("float32", (None, 8), "x")
        w = v1.get_variable("w", (8, 6), use_resource=False)
        b = v1.get_variable("b", (6,), use_resource=True)
        tf.nn.relu(tf.matmul(x, w) + b, name="y")
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(folder / "m"))


def saved_model(folder: Path) -> None:
    import tensorflow as tf

    class Small(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(np.ones((8, 6), "float32"))

        @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32, "x")])
        def infer(self, x: Any) -> Any:
            return {"y": tf.nn.relu(x @ self.w)}

    module = Small()
    tf.saved_model.save(module, str(folder), {"serving_default": module.infer})


def onnx_model(folder: Path) -> None:
    import onnx

    from tests.helpers.damage import chained, onnx_cases

    models, _ = onnx_cases()
    onnx.save(chained(models[:4], Random(0)), folder / "m.onnx")


def tflite_file(folder: Path) -> None:
    import tensorflow as tf
    import tf_keras

    made = tf.lite.TFLiteConverter.from_keras_model(model(tf_keras)).convert()
    (folder / "m.tflite").write_bytes(made)


def keras_file(version: str, suffix: str) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        import importlib

        model(importlib.import_module(version)).save(folder / f"m.{suffix}")

    return write


# -- what is read --------------------------------------------------------------------------------


def load(name: str) -> Callable[[Path], object]:
    def enter(folder: Path) -> object:
        from qgraph.frontends import load

        return load(folder / name)

    return enter


def data(folder: Path) -> None:
    from qgraph.ir.graph import Graph
    from qgraph.quant.samples.data import load_data

    graph = Graph("g")
    for name in "ab":
        graph.input(name, "float32", (None, 3))
    for array in load_data(folder / "d.npz", graph).values():
        np.asarray(array).sum()


def run_policy(folder: Path) -> None:
    from qgraph.rl.policy import load_policy

    found = load_policy(folder / "p.qpol")
    found.outputs(np.zeros((2, *found.shape), "float32"))


def output_directory(folder: Path) -> None:
    from qgraph.cli.inspect import inspect
    from qgraph.reporting.reading import read_facts
    from qgraph.stored import load_network

    with redirect_stdout(io.StringIO()):
        for read in (load_network, read_facts, inspect):
            with suppress(QGraphError):
                read(folder / "out")
    load_network(folder / "out")


def training_directory(folder: Path) -> None:
    from qgraph.retrain.directory import load
    from qgraph.train.checkpoint import read_checkpoint
    from qgraph.train.loop import network_of

    found = load(folder / "out")
    found.model()
    read_checkpoint(folder / "last.npz", network_of(found.graph))


def write_training(folder: Path) -> None:
    from qgraph.retrain.directory import load, save
    from qgraph.train.checkpoint import Checkpoint
    from qgraph.train.loop import network_of

    save(quantized("retrain"), folder / "out")
    found = load(folder / "out")
    variables = found.model().arrays()
    Checkpoint(network_of(found.graph), variables, {"step": 3}).write(folder / "last.npz")


SOUND_OUTPUT = tempfile.TemporaryDirectory()


def dump(folder: Path) -> None:
    from qgraph.archives import read_arrays
    from qgraph.verification.dump import against

    sound = Path(SOUND_OUTPUT.name) / "out"
    if not sound.exists():
        quantized().save(sound)
    against(network(str(sound)), read_arrays(folder / "tensors.npz"))


def write_dump(folder: Path) -> None:
    from qgraph.npz import write_npz
    from qgraph.stored.write import tensors

    write_npz(folder / "tensors.npz", tensors(quantized()), compressed=True)


def profile(folder: Path) -> object:
    from qgraph.quant.profile import load_profile

    return load_profile(folder / "p.yaml")


def write_profile(folder: Path) -> None:
    from dataclasses import replace

    from qgraph.quant.profile import Override, dump_profile, load_profile

    made = replace(load_profile("graffitist-int8"), overrides=(Override("conv*", weight=4),))
    (folder / "p.yaml").write_text(dump_profile(made))


DOORS = {
    "pb": Door(lambda f: frozen(f, False), load("m.pb")),
    "pbtxt": Door(lambda f: frozen(f, True), load("m.pbtxt")),
    "saved_model": Door(saved_model, load(".")),
    "checkpoint": Door(checkpoint, load("m.meta")),
    "onnx": Door(onnx_model, load("m.onnx")),
    "tflite": Door(tflite_file, load("m.tflite")),
    "keras2_h5": Door(keras_file("tf_keras", "h5"), load("m.h5")),
    "keras3_h5": Door(keras_file("keras", "h5"), load("m.h5")),
    "keras2": Door(keras_file("tf_keras", "keras"), load("m.keras")),
    "keras3": Door(keras_file("keras", "keras"), load("m.keras")),
    "data": Door(
        lambda f: np.savez_compressed(f / "d.npz", a=np.ones((9, 3), "f4"), b=np.eye(9)[:, :3]),
        data,
    ),
    "profile": Door(write_profile, profile),
    "policy_dynamic": Door(lambda f: policy(f, "dynamic"), run_policy),
    "policy_static": Door(lambda f: policy(f, "static"), run_policy),
    "output": Door(lambda f: quantized().save(f / "out"), output_directory),
    "training": Door(write_training, training_directory),
    "dump": Door(write_dump, dump),
}


# -- a process of few means ----------------------------------------------------------------------


def main() -> int:
    names, first, count = sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3])
    sound = {name: DOORS[name].sound() for name in names}
    faulthandler.enable()
    signal.signal(signal.SIGALRM, too_long)
    with tempfile.TemporaryDirectory() as folder:
        for name, files in sound.items():
            enter(DOORS[name], Path(folder) / name, files)
        limit_space()
        for name, files in sound.items():
            ends = try_door(name, files, Path(folder) / name, range(first, first + count))
            print(json.dumps({"door": name, "mutants": count, **ends}), flush=True)
    return 0


def try_door(name: str, files: Files, folder: Path, seeds: range) -> dict[str, float]:
    """The number of damaged files that were read, the number by error, and the seconds of the
    slowest.
    """
    ends: Counter[str] = Counter()
    slowest = 0.0
    for seed in seeds:
        print(f"seed {seed} of {name}", file=sys.stderr, flush=True)
        signal.alarm(SECONDS)
        begun = time.monotonic()
        try:
            enter(DOORS[name], folder, damaged(files, Random(seed)))
            ends["read"] += 1
        except QGraphError as error:
            assert len(str(error)) < 3000, f"an error of {len(str(error))} characters"
            ends[type(error).__name__] += 1
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.monotonic() - begun)
    return {**ends, "slowest_s": round(slowest, 1)}


def enter(door: Door, folder: Path, files: Files) -> None:
    """Write `files` and read them."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    door.enter(folder)


if __name__ == "__main__":
    sys.exit(main())
