"""Quantize a Keras file with MCT, Sony's model-compression-toolkit, and run it on images.

    PYTHON by_mct.py NETWORK.h5 CALIBRATION.npy IMAGES.npy SCORES.npy BITS [EPOCHS]

BITS are those of weights. The first and the last layer have 8. With EPOCHS, weights
learn from the calibration images without labels (MCT's gradient-based rounding), instead of plain
calibration.

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


def main(
    network: str, calibration: str, images: str, scores: str, bits: str, epochs: str = "0"
) -> None:
    """Write the scores of the quantized network, [n, classes]."""
    import model_compression_toolkit as mct

    samples, tested = np.load(calibration), np.load(images)

    def batches() -> Iterator[list[Any]]:
        for i in range(0, len(samples), BATCH):
            yield [samples[i : i + BATCH]]

    model = _read(network)
    config = mct.core.CoreConfig(bit_width_config=_bit_widths(model, int(bits)))
    if int(epochs):
        learning = mct.gptq.get_keras_gptq_config(n_epochs=int(epochs))
        made, _ = mct.gptq.keras_gradient_post_training_quantization(
            model, batches, gptq_config=learning, core_config=config
        )
    else:
        made, _ = mct.ptq.keras_post_training_quantization(model, batches, core_config=config)
    np.save(scores, made.predict(tested, batch_size=AT_ONCE, verbose=0))


def _bit_widths(model: Any, bits: int) -> Any:
    """The bits of weights, as MCT takes them. The last layer, which is dense, keeps 8."""
    import model_compression_toolkit as mct
    import tensorflow as tf
    from model_compression_toolkit.core.common.network_editors import NodeNameFilter, NodeTypeFilter

    found = mct.core.BitWidthConfig()
    if bits != 8:
        first = next(each for each in model.layers if isinstance(each, tf.keras.layers.Conv2D))
        for kind, weights in (("Conv2D", "kernel"), ("DepthwiseConv2D", "depthwise_kernel")):
            layers = NodeTypeFilter(getattr(tf.keras.layers, kind))
            found.set_manual_weights_bit_width(layers, bits, weights)
        folded = NodeNameFilter(f"{first.name}_bn")  # its name with the batch norm behind it
        found.set_manual_weights_bit_width(folded, 8, "kernel")
    return found


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
