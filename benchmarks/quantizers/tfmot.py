"""Google's QAT by its own tool, TFMOT, where it is installed (`pip install
tensorflow-model-optimization`): 8 bits, weights per channel, activations with a zero point.

Batch norms use the statistics of each batch throughout, which TFMOT has no option for. It trains
the network as it is: its channels are not equalized.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.families.networks import FAMILIES
from benchmarks.training_step import by_tfmot
from qgraph.train.data import TrainingData
from qgraph.train.options import Options

Network = Any
VARIABLE = re.compile(r"[^/]+/([^/]+)/.*ReadVariableOp(_1)?/resource")
ACCURACY = "accuracy"


def is_installed() -> bool:
    """Whether TFMOT can be imported."""
    from importlib.util import find_spec

    return find_spec("tensorflow_model_optimization") is not None


def float_network(make: Callable[[], Network], path: Path) -> Network:
    """The Keras model that `make` returns, with the weights of its frozen network."""
    import tensorflow as tf
    import tf_keras

    tf_keras.backend.clear_session()
    network = make()
    frozen = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    weights: dict[str, list[Any]] = {}
    for node in frozen.node:
        found = VARIABLE.fullmatch(node.name)
        if node.op == "Const" and found:
            weights.setdefault(found[1], []).append(tf.make_ndarray(node.attr["value"].tensor))
    for layer in network.layers:
        if layer.weights:
            layer.set_weights(weights[layer.name])
    return network


def trained(
    name: str, path: Path, training: TrainingData, validation: TrainingData, test: TrainingData,
    options: Options,
) -> dict[str, Any]:  # fmt: skip
    """The accuracies of a run: the best validation, all validations, and that of the test images.

    `untrained` is the accuracy of the float network, because TFMOT has no ranges before training.
    """
    network = float_network(FAMILIES[name], path)
    untrained = accuracy(network, test)
    quantized, history = best_by_validation(network, training, validation, options)
    best = max(validated[ACCURACY] for validated in history)
    scores = {"untrained": untrained, "test": accuracy(quantized, test)}
    return {**scores, "best": {ACCURACY: best}, "history": history}


def best_by_validation(
    network: Network, training: TrainingData, validation: TrainingData, options: Options,
    weight_bits: int = 8,
) -> tuple[Network, list[dict[str, Any]]]:  # fmt: skip
    """The network with TFMOT's quantizers in its best state, and all validations.

    weight_bits: of all layers but the first and the last.
    """
    import tf_keras

    quantized = by_tfmot(network)
    for layer in _weighted(quantized)[1:-1]:
        layer._weight_vars = [
            (weight, _with_bits(quantizer, weight_bits), state)
            for weight, quantizer, state in layer._weight_vars
        ]
    quantized.compile(
        tf_keras.optimizers.Adam(options.weight_rate),
        tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history: list[dict[str, Any]] = []
    best, kept = -1.0, quantized.get_weights()
    step, every = 0, options.validate_every or 1
    for epoch in range(options.epochs):
        for batch in training.batches(epoch):
            (x,) = batch.inputs.values()
            quantized.train_on_batch(x, batch.labels)
            step += 1
            if step % every == 0:
                found = accuracy(quantized, validation)
                history.append({"step": step, ACCURACY: found})
                if found > best:
                    best, kept = found, quantized.get_weights()
    quantized.set_weights(kept)
    return quantized, history


def _weighted(network: Network) -> list[Any]:
    """TFMOT's wrappers of layers with quantized weights, in order."""
    return [layer for layer in network.layers if getattr(layer, "_weight_vars", None)]


def _with_bits(quantizer: Any, bits: int) -> Any:
    """A copy with other bits; TFMOT has one quantizer for all layers of a class."""
    made = copy.copy(quantizer)
    made.num_bits = bits
    return made


def accuracy(network: Network, data: TrainingData) -> float:
    """The share of right answers."""
    right, count = 0, 0
    for batch in data.batches(None):
        (x,) = batch.inputs.values()
        scores = np.asarray(network.predict_on_batch(x))
        right += int((scores.argmax(1) == batch.labels).sum())
        count += len(x)
    return right / count
