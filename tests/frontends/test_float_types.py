"""Networks in float16, bfloat16 and float64 are taken in as networks in float32."""

import ml_dtypes
import numpy as np
import onnx
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qgraph.compiler import quantize
from qgraph.errors import UnsupportedError
from qgraph.frontends import load, load_graph_def
from qgraph.interpret import evaluate
from qgraph.ir.printing import print_graph
from tests.helpers.graphs import opaque_kinds
from tests.helpers.onnx_graphs import imported, one_op
from tests.helpers.tf_graphs import graph_def_of, v1

NARROW = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
KINDS = {
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
}
STEPS = ("conv", "depthwise", "batch_norm", "relu", "relu6", "max_pool", "average", "double")
IMAGES = np.random.default_rng(5).uniform(-1, 2, (16, 6, 6, 4)).astype(np.float32)


def rounded(narrow, *shape, seed=0):
    """Weights that the narrow type holds, in float32."""
    drawn = np.random.default_rng(seed).uniform(0.1, 0.9, shape) * 0.5
    return drawn.astype(NARROW[narrow]).astype(np.float32)


def tf_network(steps, narrow, dtype):
    """A GraphDef whose steps compute in `dtype`, or in float32 between casts, step by step."""

    def build():
        x = v1.placeholder("float32", (None, 6, 6, 4), "image")
        for i, (step, in_narrow) in enumerate(steps):
            kind = dtype if in_narrow else "float32"
            x = tf_step(step, tf.cast(x, kind), lambda *s, i=i, k=kind: constant(i, k, *s))
        y = tf.reduce_mean(tf.cast(x, "float32"), (1, 2))
        return tf.matmul(y, tf.constant(rounded(narrow, 4, 3)))

    def constant(seed, kind, *shape):
        return tf.constant(rounded(narrow, *shape, seed=seed), kind)

    return graph_def_of(build)


def tf_step(step, x, weights):
    if step == "conv":
        return tf.nn.bias_add(tf.nn.conv2d(x, weights(3, 3, 4, 4), 1, "SAME"), weights(4))
    if step == "depthwise":
        return tf.nn.depthwise_conv2d(x, weights(3, 3, 4, 1), [1] * 4, "SAME")
    if step == "batch_norm":
        others = [tf.cast(weights(4), "float32") for _ in range(4)]
        return tf.raw_ops.FusedBatchNormV3(
            x=x, scale=others[0], offset=others[1], mean=others[2], variance=others[3],
            is_training=False,
        )[0]  # fmt: skip
    if step == "max_pool":
        return tf.nn.max_pool2d(x, 2, 1, "SAME")
    if step == "average":
        return tf.nn.avg_pool2d(x, 2, 1, "SAME")
    return {"relu": tf.nn.relu, "relu6": tf.nn.relu6, "double": lambda v: v + v}[step](x)


def assert_same_quantized(one, other, feeds):
    """The same graph, exponents included, and the same codes of every quantizer."""
    found = [quantize(graph, feeds, effort="plain") for graph in (one, other)]
    assert print_graph(found[0].graph) == print_graph(found[1].graph)
    names = [n.name for n in found[0].graph.topological() if n.op == "quantize"]
    assert names
    codes = [q.reference().run(feeds, names) for q in found]
    for name in names:
        np.testing.assert_array_equal(codes[0][name].codes, codes[1][name].codes)


@settings(max_examples=8, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.booleans()), min_size=1, max_size=5),
    narrow=st.sampled_from(sorted(NARROW)),
)
def test_tensorflow_network_in_half_is_quantized_like_the_one_in_float32(steps, narrow):
    graph = load_graph_def(tf_network(steps, narrow, narrow))
    twin = load_graph_def(tf_network(steps, narrow, "float32"))
    assert {t.dtype for t in graph.types.values() if t.is_float} == {"float32"}
    assert "cast" not in {n.op for n in graph.nodes.values()}
    assert_same_quantized(graph, twin, {"image": IMAGES})


def onnx_network(steps, narrow, dtype, cast):
    """A model in `dtype`, its ends in float32 behind casts or in `dtype` as well."""
    constants, nodes = {}, []

    def weight(name, *shape):
        values = rounded(narrow, *shape, seed=len(constants))
        constants[name] = values if dtype == "float32" else values.astype(NARROW[dtype])
        return name

    def add(op, *inputs, **attrs):
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attrs))
        return nodes[-1].output[0]

    x = add("Cast", "image", to=KINDS[dtype]) if cast else "image"
    for i, step in enumerate(steps):
        w = f"w{i}"
        if step == "conv":
            x = add("Conv", x, weight(w, 4, 4, 3, 3), weight(f"{w}b", 4), pads=[1] * 4)
        elif step == "depthwise":
            x = add("Conv", x, weight(w, 4, 1, 3, 3), pads=[1] * 4, group=4)
        elif step == "batch_norm":
            x = add("BatchNormalization", x, *(weight(f"{w}{k}", 4) for k in "gbmv"))
        elif step == "max_pool":
            x = add("MaxPool", x, kernel_shape=[2, 2], pads=[0, 0, 1, 1])
        elif step == "average":
            x = add("AveragePool", x, kernel_shape=[2, 2])
        elif step == "double":
            x = add("Add", x, x)
        elif step == "relu6":
            constants[f"{w}l"] = np.asarray(0, "float32" if dtype == "float32" else NARROW[dtype])
            constants[f"{w}h"] = constants[f"{w}l"] + constants[f"{w}l"].dtype.type(6)
            x = add("Clip", x, f"{w}l", f"{w}h")
        else:
            x = add("Relu", x)
    x = add("Conv", x, weight("last", 2, 4, 1, 1))
    ends = "float32" if cast else dtype
    nodes.append(helper.make_node("Cast", [x], ["y"], to=KINDS[ends]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("image", KINDS[ends], ["N", 4, 6, 6])],
        [info("y", KINDS[ends], None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@settings(max_examples=8, deadline=None)
@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=5),
    narrow=st.sampled_from(sorted(NARROW)),
    cast=st.booleans(),
)
def test_onnx_network_in_half_is_quantized_like_the_one_in_float32(steps, narrow, cast):
    graph = imported(onnx_network(steps, narrow, narrow, cast))
    twin = imported(onnx_network(steps, narrow, "float32", cast))
    assert {t.dtype for t in graph.types.values()} == {"float32"}
    assert "cast" not in {n.op for n in graph.nodes.values()}
    assert_same_quantized(graph, twin, {"image": IMAGES.transpose(0, 3, 1, 2)})


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("narrow", NARROW)
def test_onnx_file_in_half_has_its_weights(tmp_path, narrow, external):
    model = onnx_network(["conv"], narrow, narrow, cast=False)
    data = {"save_as_external_data": True, "size_threshold": 0} if external else {}
    onnx.save(model, tmp_path / "half.onnx", **data)
    graph = load(tmp_path / "half.onnx")
    found = evaluate(graph, {"image": IMAGES.transpose(0, 3, 1, 2)})
    twin = imported(onnx_network(["conv"], narrow, "float32", cast=False))
    wanted = evaluate(twin, {"image": IMAGES.transpose(0, 3, 1, 2)})
    np.testing.assert_array_equal(found["y"], wanted["y"])
    assert len(graph.notes) == 1 and f"uses {narrow};" in graph.notes[0]


# -- ops that are not supported ------------------------------------------------------------


@pytest.mark.parametrize("narrow", NARROW)
def test_opaque_tensorflow_op_computes_in_float32(narrow):
    def build():
        x = tf.cast(v1.placeholder(narrow, (2, 3), "x"), narrow)
        return tf.math.cumprod(x, axis=1)

    graph_def = graph_def_of(build)
    before = graph_def.SerializeToString(deterministic=True)
    graph = load_graph_def(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before
    assert opaque_kinds(graph) == ["Cumprod"]
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    (found,) = evaluate(graph, {"x": x}).values()
    np.testing.assert_array_equal(found, np.cumprod(x, axis=1))


def test_functions_that_opaque_ops_call_compute_in_float32():
    signature = [tf.TensorSpec((), "bool", "which"), tf.TensorSpec((3,), "float16", "x")]

    @tf.function(input_signature=signature)
    def branches(which, x):
        return tf.cond(which, lambda: x / 3, lambda: x * 3)

    graph = load_graph_def(branches.get_concrete_function().graph.as_graph_def())
    assert opaque_kinds(graph) == ["StatelessIf"]
    x = np.float32([1, 2, 4])
    (found,) = evaluate(graph, {"which": np.array(True), "x": x}).values()
    np.testing.assert_array_equal(found, x / np.float32(3))


@pytest.mark.parametrize("narrow", NARROW)
def test_opaque_onnx_op_computes_in_float32(narrow):
    x = np.zeros((2, 3), NARROW[narrow])
    node = helper.make_node("Erf", ["x"], ["y"])
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [info("x", KINDS[narrow], x.shape)], [info("y", KINDS[narrow], x.shape)]
    )
    opset = [helper.make_opsetid("", 17)]
    model = imported(helper.make_model(graph, opset_imports=opset, ir_version=8))
    assert model.types["y"].dtype == "float32"
    (found,) = evaluate(model, {"x": np.full((2, 3), 0.3, np.float32)}).values()
    np.testing.assert_allclose(found, 0.32862676, rtol=1e-6)


def test_element_types_in_attributes_are_float32_too():
    model = one_op("EyeLike", np.zeros((3, 3), np.int64), dtype=int(TensorProto.FLOAT16))
    (found,) = evaluate(imported(model), {"x": np.zeros((3, 3), np.int64)}).values()
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.eye(3))


def test_ops_that_read_the_bits_of_half_are_refused():
    graph_def = graph_def_of(lambda: tf.bitcast(v1.placeholder("float16", (4,), "x"), "int16"))
    with pytest.raises(UnsupportedError, match="`Bitcast` reads the bits"):
        load_graph_def(graph_def)


@pytest.mark.parametrize("stored", ["bytes", "values", "one value"])
@pytest.mark.parametrize("narrow", NARROW)
def test_constants_of_half_are_decoded_however_they_are_stored(narrow, stored):
    values = np.array([1.5, -2.25, 0.0, 3.0]).astype(NARROW[narrow])
    wanted = np.full(4, 3.0) if stored == "one value" else values.astype(np.float64)

    def build():
        return tf.constant(values, narrow) + v1.placeholder(narrow, (4,), "x")

    graph_def = graph_def_of(build)
    tensor = next(n for n in graph_def.node if n.op == "Const").attr["value"].tensor
    if stored != "bytes":
        kept = values[-1:] if stored == "one value" else values
        tensor.ClearField("tensor_content")
        tensor.half_val[:] = kept.view(np.uint16).astype(int).tolist()
    (found,) = evaluate(load_graph_def(graph_def), {"x": np.zeros(4, np.float32)}).values()
    np.testing.assert_array_equal(found, wanted)


# -- float64 --------------------------------------------------------------------------------


def test_float64_file_is_read_as_float32(tmp_path):
    def build():
        x = v1.placeholder("float64", (None, 2), "x")
        low, high = tf.raw_ops.Unpack(value=tf.cast(x, "float32"), num=2, axis=1)
        wide = tf.cast(tf.stack([low, high], 1), "float64")
        values, _ = tf.raw_ops.TopKV2(input=tf.matmul(wide, tf.eye(2, dtype="float64")), k=1)
        return values

    path = tmp_path / "double.pb"
    path.write_bytes(graph_def_of(build).SerializeToString())
    graph = load(path)
    assert graph.types["x"].dtype == graph.types[graph.outputs["y"]].dtype == "float32"
    assert "uses float64;" in graph.notes[0] and "rounded" in graph.notes[0]
    (found,) = evaluate(graph, {"x": np.float32([[1, 3], [5, 2]])}).values()
    np.testing.assert_array_equal(found, [[3], [5]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_calibration_data_may_be_of_any_float_type(dtype):
    graph = load_graph_def(tf_network([("conv", False)], "float16", "float32"))
    images = IMAGES.astype(NARROW.get(dtype, dtype))
    found = quantize(graph, {"image": images}, effort="plain")
    wanted = quantize(graph, {"image": images.astype(np.float32)}, effort="plain")
    assert print_graph(found.graph) == print_graph(wanted.graph)
    assert {a.dtype.name for a in (*found.sample.values(), *found.measured_samples.values())} == {
        "float32"
    }
    np.testing.assert_array_equal(found.measured_samples["image"], wanted.measured_samples["image"])
