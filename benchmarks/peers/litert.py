"""LiteRT: TensorFlow's own converter, full integer, with weights per channel."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from qgraph.backends.tf.emit import emit_graph_def
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array


def full_integer(model: Graph, calibration: Array, batch: int) -> bytes:
    """Convert a model with one input and one output to int8, calibrated on NHWC images."""
    import tensorflow as tf

    (name,), (output,) = model.inputs, model.outputs

    def samples() -> Iterator[list[Array]]:
        for i in range(0, len(calibration), batch):
            yield [calibration[i : i + batch]]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pb"
        path.write_bytes(emit_graph_def(model).SerializeToString())
        shape = {name: [batch, *calibration.shape[1:]]}
        converter = tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(
            str(path), [name], [output], shape
        )
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = samples
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        if model.types[name].is_float:
            converter.inference_input_type = tf.int8
        converter.inference_output_type = tf.int8
        data: bytes = converter.convert()
    return data


class LiteRT:
    """An interpreter of a full-integer file, which takes float images and returns floats."""

    def __init__(self, model: bytes, threads: int = 1) -> None:
        import tensorflow as tf

        with warnings.catch_warnings():  # LiteRT moves to its own package
            warnings.simplefilter("ignore")
            self._interpreter = tf.lite.Interpreter(model_content=model, num_threads=threads)
        self._interpreter.allocate_tensors()
        self._input = self._interpreter.get_input_details()[0]
        self._output = self._interpreter.get_output_details()[0]

    def codes(self, x: Array) -> Array:
        if np.issubdtype(x.dtype, np.integer):
            return x
        scale, zero = self._input["quantization"]
        found: Array = np.clip(np.rint(x / scale) + zero, -128, 127).astype(np.int8)
        return found

    def run(self, codes: Array) -> Array:
        """Run from codes to codes, which is what benchmarks time."""
        self._interpreter.set_tensor(self._input["index"], codes)
        self._interpreter.invoke()
        found: Array = self._interpreter.get_tensor(self._output["index"])
        return found

    def predict(self, x: Array, batch: int = 1) -> Array:
        scale, zero = self._output["quantization"]
        parts: list[Any] = [self.run(self.codes(x[i : i + batch])) for i in range(0, len(x), batch)]
        found: Array = (np.concatenate(parts).astype(np.float32) - zero) * np.float32(scale)
        return found
