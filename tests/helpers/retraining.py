"""A small network with batch norms, calibrated for training, and data that it can learn from."""

from functools import cache
from pathlib import Path

import numpy as np
import tf_keras as keras

from qgraph.compiler import quantize
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.quantized import Quantized
from qgraph.train.data import ArrayBatches
from qgraph.train.folded import norms_of
from qgraph.train.loop import Trainer
from qgraph.train.options import Options

layers = keras.layers
PLAN = "weights=3sd"


def keras_network(seed: int = 0, epsilon: float = 0.05) -> keras.Model:
    """A convolution, a depthwise convolution and a dense layer, with batch norms that change
    values.
    """
    keras.utils.set_random_seed(seed)
    image = keras.Input([8, 8, 3], name="image")
    x = layers.Conv2D(6, 3, padding="same", use_bias=False)(image)
    x = layers.ReLU()(layers.BatchNormalization(epsilon=epsilon)(x))
    x = layers.DepthwiseConv2D(3, strides=2, use_bias=True, bias_initializer="normal")(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Dense(5)(layers.Flatten()(x))
    return as_after_training(keras.Model(image, layers.BatchNormalization()(x)), seed)


def network_of_other_norms(seed: int = 0) -> keras.Model:
    """Batch norms before layers of each kind, before and behind one, and between two ReLUs."""
    keras.utils.set_random_seed(seed)
    image = keras.Input([8, 8, 3], name="image")
    x = layers.ReLU()(layers.Conv2D(6, 3)(image))
    x = layers.Conv2D(8, 3, use_bias=False)(layers.BatchNormalization(epsilon=0.05)(x))
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.DepthwiseConv2D(2, depth_multiplier=2)(layers.BatchNormalization()(x))
    x = layers.ReLU()(layers.BatchNormalization()(layers.ReLU()(x)))
    x = layers.ReLU()(layers.Dense(12)(layers.GlobalAveragePooling2D()(x)))
    x = layers.Dense(5)(layers.BatchNormalization()(x))
    return as_after_training(keras.Model(image, x), seed)


def as_after_training(model: keras.Model, seed: int) -> keras.Model:
    """Set batch norms as after training: scales other than 1, and the statistics of `images`."""
    rng = np.random.default_rng(seed)
    norms = [layer for layer in model.layers if isinstance(layer, layers.BatchNormalization)]
    for layer in norms:
        layer.gamma.assign(rng.uniform(0.5, 2, layer.gamma.shape))
        layer.beta.assign(rng.normal(0, 0.3, layer.gamma.shape))
        layer.momentum = 0.5
    for _ in range(20):
        model(images(), training=True)  # the statistics become those of the data
    for layer in norms:
        layer.momentum = 0.99
    return model


def images(count: int = 64, seed: int = 1) -> np.ndarray:
    """Patches of few colors, whose classes differ."""
    rng = np.random.default_rng(seed)
    patches = rng.uniform(size=(count, 2, 2, 3)).repeat(4, axis=1).repeat(4, axis=2)
    return (patches * rng.uniform(0.8, 1, (count, 8, 8, 3))).astype("float32")


@cache
def quantized(folder: Path, profile: str = "graffitist-int4") -> Quantized:
    """A network calibrated so that training improves it; the float network is the teacher."""
    keras_network().save(folder / "net.h5")
    return quantize(folder / "net.h5", images(), profile=profile, plan=PLAN, mode="retrain")


def task(graph: Graph, count: int = 96, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Images, and the class that the float network gives each."""

    x = images(count, seed)
    (scores,) = evaluate(graph, {graph.inputs[0]: x}, list(graph.outputs.values())).values()
    return x, scores.argmax(-1)


def batches(made: Quantized, count: int = 96, seed: int = 2, size: int = 16) -> ArrayBatches:
    x, labels = task(made.floating, count, seed)
    return ArrayBatches({made.graph.inputs[0]: x}, labels, size, 0)


def trainer(made: Quantized, options: Options, **more) -> Trainer:
    """A trainer with six steps per epoch."""
    data = more.pop("data", None) or batches(made)
    validation = more.pop("validation", None) or batches(made, seed=3)
    norms = norms_of(made.floating)
    return Trainer(made.graph, made.floating, norms, data, validation, options, **more)
