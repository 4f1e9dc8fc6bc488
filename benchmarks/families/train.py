"""Train the six networks in float: ``python -m benchmarks.families.train [--only NAME]``.

Each frozen network is saved in the cache folder of the assets (`path_of`), with its accuracy in a
JSON file beside it. A network that exists is not trained again. The same seed, TensorFlow and kind
of machine give the same network, on one core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.families.data import Part, Split, fashion_mnist
from benchmarks.families.networks import FAMILIES, Network
from benchmarks.registry import cache
from qgraph.backends.tf.program import TFProgram
from qgraph.ir.types import Array
from qgraph.quiet import import_tensorflow_quietly

SEED, EPOCHS, BATCH = 1, 8, 128
PEAK_RATE, WARM_UP = 1e-2, 0.2  # the share of steps in which the rate rises
INPUT, OUTPUT = "image", "logits"


def path_of(name: str) -> Path:
    """The frozen network of a family. If it is missing, a separate process trains it."""
    path = _path(name)
    if not path.exists():
        subprocess.run([sys.executable, "-m", __name__, "--only", name], check=True)
    return path


def facts_of(name: str) -> dict[str, float]:
    """The facts of a family's network: parameters, accuracies, training."""
    facts: dict[str, float] = json.loads(path_of(name).with_suffix(".json").read_text("utf-8"))
    return facts


def train_and_save(name: str, data: Split, path: Path) -> None:
    """Train a network, and write it frozen to `path`, with its facts as JSON beside it."""
    import tensorflow as tf
    import tf_keras

    tf_keras.backend.clear_session()
    tf_keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    network = FAMILIES[name]()
    start = time.perf_counter()
    train(network, data)
    seconds = time.perf_counter() - start
    frozen = freeze(network)
    program = TFProgram(frozen)
    facts = {
        "parameters": network.count_params(),
        "epochs": EPOCHS,
        "seconds": round(seconds, 1),
        "validation": accuracy(program, data.validation),
        "test": accuracy(program, data.test),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    path.write_bytes(frozen.SerializeToString(deterministic=True))
    print(name, json.dumps(facts), flush=True)


def train(network: Network, data: Split) -> None:
    """Train with Adam; the rate rises linearly and falls by a cosine. Half of the images are
    mirrored.
    """
    import tf_keras

    steps = EPOCHS * (len(data.training.labels) // BATCH)
    rate = tf_keras.optimizers.schedules.CosineDecay(
        PEAK_RATE / 10,
        int(steps * (1 - WARM_UP)),
        warmup_target=PEAK_RATE,
        warmup_steps=int(steps * WARM_UP),
    )
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(tf_keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    rng = np.random.default_rng(SEED)
    for _ in range(EPOCHS):
        order = rng.permutation(len(data.training.labels))
        images = mirrored(data.training.images[order], rng)
        labels = data.training.labels[order]
        network.fit(images, labels, BATCH, epochs=1, shuffle=False, verbose=0)


def accuracy(program: TFProgram, part: Part) -> float:
    scores = program.predict(INPUT, part.images, OUTPUT, 500)
    return float((scores.argmax(1) == part.labels).mean())


def freeze(network: Network) -> Any:
    """The inference graph as a GraphDef; batch norms stay as they are."""
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def infer(image: Any) -> Any:
        return tf.identity(network(image, training=False), name=OUTPUT)

    shape = tf.TensorSpec([None, *network.input_shape[1:]], tf.float32, INPUT)
    frozen = convert_variables_to_constants_v2(infer.get_concrete_function(shape))
    # Leave out what tf.function adds after its result, a barrier on the reads of all variables.
    return tf.compat.v1.graph_util.extract_sub_graph(frozen.graph.as_graph_def(), [OUTPUT])


def _path(name: str) -> Path:
    return cache() / "families" / f"{name}.pb"


def mirrored(images: Array, rng: np.random.Generator) -> Array:
    """The images, with half of them mirrored."""
    chosen = rng.random(len(images)) < 0.5
    return np.where(chosen[:, None, None, None], images[:, :, ::-1], images)


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(FAMILIES)}; may be repeated.")
    ] = None,
    again: Annotated[bool, typer.Option(help="Train what is there, too.")] = False,
) -> None:
    """Train the networks that are not in the cache."""
    import_tensorflow_quietly()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    data = fashion_mnist()
    for name in only or FAMILIES:
        path = _path(name)
        if again or not path.exists():
            train_and_save(name, data, path)
        else:
            print(name, " ".join(path.with_suffix(".json").read_text("utf-8").split()), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    typer.run(main)
