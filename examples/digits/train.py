"""Train a small MobileNet-style network on the digits and freeze it to ``digits.pb``.

python examples/digits/train.py [output.pb]

Needs: qgraph, for TensorFlow and Keras 2; scikit-learn (`pip install scikit-learn`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # a GPU would train another network

import numpy as np
import tensorflow as tf
import tf_keras as keras
from data import SEED, Part, load_digits_split
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tf_keras import layers

OUTPUT = Path(__file__).with_name("digits.pb")
EPOCHS = 60
BATCH = 32


def build_network() -> Any:
    """Return the untrained network, [n, 8, 8, 1] to the probabilities of 10 digits.

    It has what makes networks hard to quantize: depthwise layers, batch norms with scales of
    their own, a residual sum and a padded average whose border windows cover fewer pixels.
    """
    image = keras.Input([8, 8, 1], name="image")
    x = _norm_relu6(layers.Conv2D(16, 3, padding="same", use_bias=False, name="stem")(image))
    x = _separable(x, 24, name="block1")
    x = shortcut = _separable(x, 32, stride=2, name="block2")
    x = _separable(x, 32, name="block3")
    x = layers.Add(name="residual")([shortcut, x])
    x = layers.AveragePooling2D(3, strides=1, padding="same", name="smooth")(x)
    x = _separable(x, 48, name="block4")
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.Dropout(0.2, name="dropout")(x)
    return keras.Model(image, layers.Dense(10, activation="softmax", name="classifier")(x))


def _separable(x: Any, channels: int, *, name: str, stride: int = 1) -> Any:
    depthwise = layers.DepthwiseConv2D(
        3, strides=stride, padding="same", use_bias=False, name=f"{name}_depthwise"
    )
    pointwise = layers.Conv2D(channels, 1, use_bias=False, name=f"{name}_pointwise")
    return _norm_relu6(pointwise(_norm_relu6(depthwise(x))))


def _norm_relu6(x: Any) -> Any:
    return layers.ReLU(max_value=6.0)(layers.BatchNormalization(momentum=0.95)(x))


def train(network: Any, data: Part, validation: Part) -> None:
    """Train in place, and print the validation accuracy now and then."""
    steps = len(data.labels) // BATCH
    network.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-2, EPOCHS * steps)),
        keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
    )
    targets = np.eye(10, dtype=np.float32)[data.labels]
    rng = np.random.default_rng(SEED)
    for epoch in range(1, EPOCHS + 1):
        order = rng.permutation(len(targets))
        for step in range(steps):
            batch = order[step * BATCH : (step + 1) * BATCH]
            network.train_on_batch(data.images[batch], targets[batch])
        if epoch % 10 == 0:
            right = accuracy(network(validation.images, training=False).numpy(), validation)
            print(f"epoch {epoch}: validation accuracy {right:.2%}", flush=True)


def accuracy(probabilities: np.ndarray, part: Part) -> float:
    """Share of a part's images whose likeliest digit is the right one."""
    return float(np.mean(probabilities.argmax(axis=1) == part.labels))


def freeze(network: Any) -> Any:
    """Return the inference graph as a GraphDef, ``image`` to ``probabilities``.

    Variables become constants; batch norms stay as they are, for the compiler to fold.
    """

    @tf.function(autograph=False)
    def infer(image: Any) -> Any:
        return tf.identity(network(image, training=False), name="probabilities")

    concrete = infer.get_concrete_function(tf.TensorSpec([None, 8, 8, 1], tf.float32, "image"))
    frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=True)
    # What tf.function adds after its result, a barrier on every variable's read, is left out.
    return tf.compat.v1.graph_util.extract_sub_graph(frozen.graph.as_graph_def(), ["probabilities"])


def predict(graph_def: Any, images: np.ndarray) -> np.ndarray:
    """Run the frozen graph in a TF session: float32 [n, 10] probabilities."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return np.asarray(session.run("probabilities:0", {"image:0": images}))


def main() -> None:
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    tf.get_logger().setLevel("ERROR")
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    data = load_digits_split()

    network = build_network()
    train(network, data.train, data.validation)
    graph_def = freeze(network)
    before = accuracy(network(data.test.images, training=False).numpy(), data.test)
    after = accuracy(predict(graph_def, data.test.images), data.test)
    print(f"test accuracy {before:.2%}, frozen {after:.2%}")

    output.write_bytes(graph_def.SerializeToString(deterministic=True))
    print(f"{output}: {len(graph_def.node)} nodes, {output.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
