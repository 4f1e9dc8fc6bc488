"""Keras models of small quantized networks, and the properties that tests compare."""

from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras

from qgraph import retrain
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.quantized import Quantized
from qgraph.train.keras import QuantizedModel

BATCH = 16


def samples() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(64, 6)).astype("float32")


def compiled(source: Quantized, optimizer=None) -> QuantizedModel:
    model = retrain.keras_model(source)
    model.compile(optimizer or keras.optimizers.SGD(0.01), model.distillation_loss())
    return model


def arrays(variables) -> list[np.ndarray]:
    return [v.numpy() for v in variables]


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def assert_is_inference(model: QuantizedModel, x: np.ndarray, batch: int) -> None:
    """Assert that the finalized graph in TensorFlow equals the model's predictions, to the bit."""
    graph = model.finalized()
    program = TFProgram(emit_graph_def(graph))
    found = model.predict(x, batch_size=batch, verbose=0)
    named = found if isinstance(found, dict) else {next(iter(graph.outputs)): found}
    for name, values in named.items():
        wanted = program.predict(graph.inputs[0], x, name, batch)
        np.testing.assert_array_equal(values, wanted, err_msg=name)


def scalars(folder: Path) -> dict:
    """Scalars by name and step."""
    found: dict = {}
    for file in folder.glob("events*"):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                number = float(tf.make_ndarray(value.tensor))
                found.setdefault(value.tag, {})[event.step] = number
    return found
