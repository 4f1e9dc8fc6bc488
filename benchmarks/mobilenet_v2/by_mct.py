"""Quantize a Keras file with MCT, Sony's model-compression-toolkit, and run it on images.

    PYTHON benchmarks/mobilenet_v2/by_mct.py NETWORK.h5 CALIBRATION.npy IMAGES.npy SCORES.npy

PYTHON is that of an environment with `model-compression-toolkit` and a TensorFlow that it supports
(2.14 or 2.15). Nothing else of the project is imported here, because qgraph needs a newer one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

BATCH, AT_ONCE = 32, 500  # images of a batch of calibration, and images that run together


def main(network: str, calibration: str, images: str, scores: str) -> None:
    """Write the scores of the quantized network, [n, classes]."""
    import model_compression_toolkit as mct

    samples, tested = np.load(calibration), np.load(images)

    def batches() -> Iterator[list[Any]]:
        for i in range(0, len(samples), BATCH):
            yield [samples[i : i + BATCH]]

    made, _ = mct.ptq.keras_post_training_quantization(_read(network), batches)
    np.save(scores, made.predict(tested, batch_size=AT_ONCE, verbose=0))


def _read(path: str) -> Any:
    """The network, without arguments of inputs that Keras 2.15 does not know."""
    import h5py
    import tensorflow as tf

    with h5py.File(path) as file:
        config = json.loads(file.attrs["model_config"])
    for layer in config["config"]["layers"]:
        layer["config"].pop("optional", None)
    model = tf.keras.models.model_from_json(json.dumps(config))
    model.load_weights(path)
    return model


if __name__ == "__main__":
    main(*sys.argv[1:])
