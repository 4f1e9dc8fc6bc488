"""An int8 convolution in a .tflite file, run by the reference kernels of LiteRT."""

from typing import Any

import numpy as np


def run(x: Any, w: Any, shift: int) -> Any:
    """Codes of `requantize(conv2d(x, w))`, int8, by a multiplier of 2^-shift.

    x: int8 [1, h, w, c]. w: int8 [1, 1, c, out].
    """
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(
        model_content=_model(x, w, shift),
        experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def _model(x: Any, w: Any, shift: int) -> bytes:
    import flatbuffers
    from tensorflow.lite.python import schema_py_generated as schema

    filters = np.ascontiguousarray(w.transpose(3, 0, 1, 2))
    out = w.shape[-1]
    contents = [b"", b"", filters.tobytes(), np.zeros(out, np.int32).tobytes(), b""]

    def buffer(content: bytes) -> Any:
        made = schema.BufferT()
        made.data = np.frombuffer(content, np.uint8) if content else None
        return made

    def tensor(name: str, shape: Any, dtype: int, index: int, exponents: list[int]) -> Any:
        made, scales = schema.TensorT(), schema.QuantizationParametersT()
        scales.scale = np.ldexp(np.float32(1), -np.array(exponents, np.int32))
        scales.zeroPoint = np.zeros(len(exponents), np.int64)
        made.name, made.shape, made.type, made.buffer = name, list(shape), dtype, index
        made.quantization = scales
        return made

    int8, int32 = schema.TensorType.INT8, schema.TensorType.INT32
    convolution, code, graph = schema.OperatorT(), schema.OperatorCodeT(), schema.SubGraphT()
    convolution.inputs, convolution.outputs = [0, 1, 2], [3]
    convolution.builtinOptionsType = schema.BuiltinOptions.Conv2DOptions
    options = convolution.builtinOptions = schema.Conv2DOptionsT()
    options.padding, options.strideW, options.strideH = schema.Padding.VALID, 1, 1
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CONV_2D
    code.version = 3
    graph.tensors = [
        tensor("x", x.shape, int8, 1, [4]),
        tensor("w", filters.shape, int8, 2, [5] * out),
        tensor("b", [out], int32, 3, [9] * out),
        tensor("y", (*x.shape[:3], out), int8, 4, [9 - shift]),
    ]
    graph.inputs, graph.outputs, graph.operators = [0], [3], [convolution]
    model = schema.ModelT()
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    model.buffers = [buffer(content) for content in contents]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
