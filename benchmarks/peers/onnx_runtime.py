"""ONNX Runtime: float, and static by its quantizer (QDQ, u8 activations, s8 or s4 weights)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from qgraph.foreign import Proto
from qgraph.ir.types import Array


class OnnxRuntime:
    """A session on an ONNX file, which takes NHWC images.

    optimized: with ONNX Runtime's integer kernels. On x86 without VNNI these saturate sums of two
    products to 16 bits, so the results differ from those that the file defines.
    """

    def __init__(self, model: bytes, threads: int = 1, optimized: bool = True) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        if not optimized:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name

    def run(self, x: Array) -> Array:
        return self.run_nchw(_nchw(x))

    def run_nchw(self, x: Array) -> Array:
        """Run on NCHW images, which is what benchmarks time."""
        (found,) = self._session.run(None, {self._input: x})
        return np.asarray(found)

    def predict(self, x: Array, batch: int) -> Array:
        return np.concatenate([self.run(x[i : i + batch]) for i in range(0, len(x), batch)])


LAYERS = {"Conv": 0, "Gemm": 1, "MatMul": 1}  # the axis of the outputs in their weights


def quantized(
    model: bytes, calibration: Array, batch: int, per_channel: bool, weight_bits: int = 8
) -> bytes:
    """The model in integers: min-max calibration on NHWC images, after the usual pre-processing.

    weight_bits: 8 or 4. The first and the last layer keep weights of 8 bits.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.feeds = self._feeds(name)

        def _feeds(self, name: str) -> Iterator[dict[str, Array]]:
            for i in range(0, len(calibration), batch):
                yield {name: _nchw(calibration[i : i + batch])}

        def get_next(self) -> Any:
            return next(self.feeds, None)

    import onnx

    with tempfile.TemporaryDirectory() as folder:
        first, ready, done = (Path(folder) / f"{n}.onnx" for n in ("float", "ready", "int8"))
        first.write_bytes(model)
        # Inference of symbolic shapes fails for some networks, and no network needs it.
        quant_pre_process(first, ready, skip_symbolic_shape=True)
        graph = onnx.load(ready).graph
        weights = {8: QuantType.QInt8, 4: QuantType.QInt4}
        ends = _end_weights(graph) if weight_bits != 8 else {}
        kept = {n: [{"quant_type": weights[8], "axis": axis}] for n, axis in ends.items()}
        quantize_static(
            ready,
            done,
            Reader(graph.input[0].name),
            quant_format=QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=QuantType.QUInt8,
            weight_type=weights[weight_bits],
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={"TensorQuantOverrides": kept},
        )
        return done.read_bytes()


def _end_weights(graph: Proto) -> dict[str, int]:
    """The weights of the first and the last layer, each with the axis of its outputs."""
    layers = [node for node in graph.node if node.op_type in LAYERS]
    return {node.input[1]: LAYERS[node.op_type] for node in (layers[0], layers[-1])}


def _nchw(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if x.ndim == 4 else x
