"""`.tflite` files that TensorFlow's converter makes, and their results in LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from qgraph.backends.tflite.executors import LiteRTSession
from qgraph.backends.tflite.model_builder import TfliteModelBuilder
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.tflite_schema import schema

# LiteRT sums products in another order than numpy, so float32 results differ in the last digits.
TOLERANCE = 1e-5


def converted(
    function: Callable[..., Any], shapes: Sequence[Sequence[int | None]], half: bool = False
) -> bytes:
    """A file that computes `function` of float tensors. half: Whether weights are float16."""
    specs = [tf.TensorSpec(shape, tf.float32, name=f"x{i}") for i, shape in enumerate(shapes)]
    made = tf.function(function, input_signature=specs, autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([made.get_concrete_function()])
    if half:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    data: bytes = converter.convert()
    return data


class Written(NamedTuple):
    """One operator of a file. An input is a constant, or the number of an operator before; -1 is
    the input `x` of the file.
    """

    op: str
    inputs: Sequence[Any]
    shape: Sequence[int]
    dtype: str = "float32"
    options: str | None = None
    fields: Mapping[str, Any] = {}


def written(shape: Sequence[int], *operators: Written) -> bytes:
    """A file with these operators, the last of which computes its output `y`."""
    builder = TfliteModelBuilder("m")
    builder.inputs["x"] = builder.tensor("x", shape, "float32")
    places = []
    for one in operators:
        inputs = [
            builder.tensor("c", i.shape, i.dtype.name, data=i.tobytes())
            if isinstance(i, np.ndarray)
            else ([*places, builder.inputs["x"]][i])
            for i in one.inputs
        ]
        made = builder.tensor("y" if one is operators[-1] else "t", one.shape, one.dtype)
        places.append(builder.operator(one.op, inputs, made, one.options, **one.fields))
    builder.outputs["y"] = places[-1]
    return builder.model({})


def operators_of(data: bytes) -> set[str]:
    """The names of the operators in a file."""
    package = schema()
    model = package.Model.GetRootAs(data, 0)
    names = {value: name for name, value in vars(package.BuiltinOperator).items()}
    codes = [model.OperatorCodes(i) for i in range(model.OperatorCodesLength())]
    return {names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())] for code in codes}


def litert(data: bytes, inputs: Sequence[Any]) -> list[Any]:
    """The results of LiteRT in the order of the file; of its reference kernels where possible."""
    try:
        session = LiteRTSession(data, True, True)
    except ValueError:  # such as for ELU
        session = LiteRTSession(data, False, True)
    session.run(inputs)
    graph = schema().Model.GetRootAs(data, 0).Subgraphs(0)
    return [session.tensor(int(i)) for i in graph.OutputsAsNumpy()]


def assert_same_as_litert(
    graph: Graph, data: bytes, feeds: Mapping[str, Any], tolerance: float = TOLERANCE
) -> None:
    """Compare the outputs of a graph, in the order of the file, with those of LiteRT."""
    found = evaluate(graph, dict(feeds))
    wanted = litert(data, list(feeds.values()))
    assert len(found) == len(wanted)
    for name, array in zip(found, wanted, strict=True):
        assert found[name].shape == array.shape and found[name].dtype == array.dtype, name
        scale = max(float(np.abs(array.astype("f8")).max(initial=0)), 1.0)
        np.testing.assert_allclose(found[name], array, rtol=0, atol=tolerance * scale)
