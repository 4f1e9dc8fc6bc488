"""ONNX models made by hand, and their results in ONNX Runtime."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from qgraph.frontends.onnx import import_model, read
from qgraph.interpret import evaluate
from tests.helpers.graphs import opaque_kinds

RANDOM = np.random.default_rng(7)
KINDS = {
    "float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL,
    "int32": TensorProto.INT32,
    "int8": TensorProto.INT8,
}  # fmt: skip


def f(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return np.abs(f(*shape)) + np.float32(0.1)


def ints(*values):
    return np.array(values, np.int64)


def feed_of(model):
    """A random input for a model of one op, where its function is defined."""
    kind = model.graph.input[0].type.tensor_type
    shape = [d.dim_value for d in kind.shape.dim]
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32) * 3
    needs_positive = {"Log", "Sqrt", "Pow", "ReduceLogSum"} & {n.op_type for n in model.graph.node}
    return np.abs(x) + np.float32(0.1) if needs_positive else x


def info(name, shape=None, dtype="float32"):
    return helper.make_tensor_value_info(name, KINDS[dtype], shape)


def model_of(nodes, inputs, outputs=("y",), constants=None, opset=17, ir_version=8):
    """`inputs`: name -> shape (or a ValueInfoProto), `constants`: name -> array."""
    feeds = [i if isinstance(i, ValueInfoProto) else info(n, i) for n, i in inputs.items()]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs]
    kept = [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", feeds, results, kept)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def one_op(op, x, *others, opset=17, outputs=("y",), inputs=None, **attrs):
    """A model of one node, whose first argument is the input `x`; the others are constants."""
    constants = {f"c{i}": v for i, v in enumerate(others) if v is not None}
    names = ["x", *(f"c{i}" if v is not None else "" for i, v in enumerate(others))]
    node = helper.make_node(op, names, list(outputs), **attrs)
    dtype = x.dtype.name
    return model_of(
        [node], {"x": info("x", inputs or x.shape, dtype)}, outputs, constants, opset=opset
    )


def runtime(model, feeds):
    """All outputs by ONNX Runtime, without its optimizations."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def imported(model, **options):
    return import_model(read(model), **options)


def assert_like_runtime(model, feeds, opaque=(), tolerance=2e-5):
    """Assert that the imported graph computes what ONNX Runtime does, with these opaque ops (or
    any).
    """
    graph = imported(model)
    wanted = runtime(model, feeds)
    found = evaluate(graph, {graph.inputs[i]: v for i, v in enumerate(feeds.values())})
    assert len(found) == len(wanted)
    for (name, a), b in zip(found.items(), wanted.values(), strict=True):
        assert a.dtype == b.dtype, name
        assert a.shape == b.shape, name
        scale = max(float(np.abs(b).max(initial=0)), 1.0) if b.dtype.kind == "f" else 0
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale, err_msg=name)
    assert opaque is None or opaque_kinds(graph) == sorted(opaque)
    return graph
