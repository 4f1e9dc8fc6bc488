"""int8 `.tflite` files: scales that are powers of two are kept, others are left out."""

import re

import numpy as np
import pytest

pytest.importorskip("tflite", reason="pip install tflite")
pytest.importorskip("ai_edge_litert", reason="pip install ai-edge-litert")

import tensorflow as tf

import qgraph
from qgraph.backends.tflite.arithmetic import ARITHMETICS
from qgraph.backends.tflite.executors import sessions_of
from qgraph.backends.tflite.model_builder import QuantizedScale, TfliteModelBuilder
from qgraph.backends.tflite.tflite_form import FILE
from qgraph.errors import LoadError, UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.frontends import load
from qgraph.frontends.tflite import model as reader
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.reading import spec_of
from qgraph.ir.types import Fixed
from qgraph.stored import load_network
from tests.helpers.cli import small_network, typical_images
from tests.helpers.tflite_files import Written, litert, written

KEPT = "scales are powers of two: kept"


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.pb"
    path.write_bytes(small_network(tf.nn.relu6).SerializeToString())
    return load(path)


def codes_of_reference(made, feed):
    """The codes of the integer reference by tensor, with the exponent."""
    found = Reference(made.graph).run(feed)
    return {name: value for name, value in found.items() if isinstance(value, Fixed)}


def assert_read_again(first, path, images, profile, codes=False):
    """The codes of each tensor equal those of the executor, and outputs those of the network."""
    again = qgraph.quantize(path, images, profile=profile)
    (note,) = again.graph.notes
    assert re.fullmatch(rf"the model is already quantized: (\d+) of \1 {KEPT}", note)
    (arithmetic,) = (a for a in ARITHMETICS if a.name == profile)
    session, *_ = sessions_of(arithmetic.executors[0], path.read_bytes())
    tensors = reader.read(path.read_bytes()).network.tensors
    compared = set()
    for image in images[:4]:
        wanted = codes_of_reference(first, {first.graph.inputs[0]: image[None]})
        found = codes_of_reference(again, {again.graph.inputs[0]: image[None]})
        if not codes:
            session.run([image[None]])
        for index, tensor in enumerate(tensors):
            if tensor.scale is None or tensor.is_constant or tensor.short not in found:
                continue
            value = found[tensor.short]
            if not codes:
                held = session.tensor(index).astype(int) - int(tensor.scale.zeros[0])
                np.testing.assert_array_equal(value.codes, held, err_msg=tensor.short)
            if tensor.short in wanted:
                np.testing.assert_array_equal(value.codes, wanted[tensor.short].codes)
            compared.add(tensor.short)
        (one,), (other,) = (made.graph.outputs.values() for made in (first, again))
        if one in wanted:
            np.testing.assert_array_equal(found[other].codes, wanted[one].codes)
    return compared, again


@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("arithmetic", ARITHMETICS, ids=lambda a: a.name)
def test_an_export_gives_the_same_codes_again(arithmetic, codes, graph, tmp_path):
    images = typical_images()
    first = qgraph.quantize(graph, images, profile=arithmetic.name, effort="plain")
    first.save(tmp_path / "first")
    qgraph.export(tmp_path / "first", "tflite", tmp_path / "made", options={"codes": codes})
    path = tmp_path / "made" / FILE
    compared, again = assert_read_again(first, path, images, arithmetic.name, codes)
    assert len(compared) >= 3, compared
    again.save(tmp_path / "again")


def scaled_file(exponent, zero=-128, scale=None):
    """y = x * weights + x, as int8."""
    builder = TfliteModelBuilder("m")
    code = QuantizedScale(exponent, zero)
    builder.inputs["x"] = x = builder.tensor("x", (2, 3), "int8", code)
    weights = builder.constant("w", np.array([[64, -128, 127]], "i1"), QuantizedScale(7))
    product = builder.operator("MUL", [x, weights], builder.tensor("t", (2, 3), "int8", code))
    builder.outputs["y"] = builder.operator(
        "RESHAPE",
        [product, builder.constant("s", np.array([3, 2], "i4"))],
        builder.tensor("y", (3, 2), "int8", code),
    )
    return builder.model({})


def test_quantizers_that_are_left_out_cut_off_negative_values(tmp_path):
    path, x = tmp_path / "m.tflite", np.array([[4.0, 4, 4], [-1, 2, 3]], "f4")
    for zero, wanted in ((-128, [2, 0, 3.96875, 0, 0, 2.9765625]), (0, None)):
        path.write_bytes(scaled_file(4, zero))
        graph = load(path)
        assert "its weights were dequantized and 2 quantizers" in graph.notes[0]
        plain = (x * np.array([0.5, -1, 0.9921875], "f4")).ravel()
        found = evaluate(graph, {"x": x})["y"]
        assert found.shape == (3, 2)
        np.testing.assert_array_equal(found.ravel(), plain if wanted is None else wanted)


def test_kept_quantizers_round_to_the_codes_of_the_file(tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(scaled_file(4))
    graph = load(path, keep_scales=True)
    assert graph.notes == ["the model is already quantized: 3 of 3 " + KEPT]
    even = 2 * np.arange(128)
    # No product is a tie, which LiteRT rounds in another way.
    for some in even[even % 128 != 64].reshape(-1, 2, 3):
        (held,) = litert(path.read_bytes(), [(some - 128).astype("i1")])
        found = evaluate(graph, {"x": (some / 16).astype("f4")})["y"] * 16 - 128
        np.testing.assert_array_equal(found, held)


def test_a_file_of_the_converter_is_read_as_float(tmp_path, graph):
    """Its scales are not powers of two; the float network is near the int8 one."""
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 0.4, (3, 3, 3, 6)).astype("f4")

    @tf.function(input_signature=[tf.TensorSpec((1, 8, 8, 3), tf.float32)], autograph=False)
    def function(x):
        y = tf.nn.relu(tf.nn.conv2d(x, weights, 2, "SAME") + 0.1)
        return tf.reduce_mean(tf.concat([y, y * 2], -1), (1, 2))

    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([image[None]] for image in typical_images())
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    path, image = tmp_path / "m.tflite", typical_images(1)
    path.write_bytes(converter.convert())
    graph = load(path)
    assert "quantized again, with powers of two" in graph.notes[0]
    (wanted,) = litert(path.read_bytes(), [image])
    (found,) = evaluate(graph, {graph.inputs[0]: image}).values()
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())
    made = qgraph.quantize(path, typical_images(), effort="plain")
    assert made.graph.notes


def test_a_fused_activation_of_a_pool_is_rounded_to_codes(tmp_path):
    """With a step of 4, ReLU6 gives 6, which is not a code: the quantizer stays."""
    builder = TfliteModelBuilder("m")
    code = QuantizedScale(-2)
    builder.inputs["x"] = x = builder.tensor("x", (1, 2, 2, 1), "int8", code)
    fields = {"FilterHeight": 2, "FilterWidth": 2, "StrideH": 1, "StrideW": 1, "Padding": 1}
    fields["FusedActivationFunction"] = 3
    made = builder.tensor("y", (1, 1, 1, 1), "int8", code)
    builder.outputs["y"] = builder.operator("MAX_POOL_2D", [x], made, "Pool2DOptions", **fields)
    (tmp_path / "m.tflite").write_bytes(builder.model({}))
    graph = load(tmp_path / "m.tflite", keep_scales=True)
    assert graph.producer(graph.outputs["y"]).op == "quantize"
    found = evaluate(graph, {"x": np.full((1, 2, 2, 1), 40, "f4")})["y"]
    (held,) = litert(builder.model({}), [np.full((1, 2, 2, 1), 10, "i1")])
    assert found.item() == 4 * held.item() == 8


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -0.5])
def test_a_scale_that_is_not_a_positive_number_is_refused(tmp_path, scale):
    data = bytearray(scaled_file(4))
    at = data.index(np.float32(2**-4).tobytes())
    data[at : at + 4] = np.float32(scale).tobytes()
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(LoadError, match="a scale that is not a positive number"):
        load(tmp_path / "m.tflite")


@pytest.mark.parametrize("dtype", ["i4", "i8"])
@pytest.mark.parametrize(("code", "rounded"), [(1 << 24, False), ((1 << 24) + 1, True)])
def test_a_bias_that_float32_cannot_hold_is_noted(tmp_path, code, rounded, dtype):
    builder = TfliteModelBuilder("m")
    builder.inputs["x"] = x = builder.tensor("x", (2, 3), "int8", QuantizedScale(4))
    bias = builder.constant("b", np.array([code, 1, 2], dtype), QuantizedScale(12))
    made = builder.tensor("y", (2, 3), "int8", QuantizedScale(4))
    builder.outputs["y"] = builder.operator("ADD", [x, bias], made)
    (tmp_path / "m.tflite").write_bytes(builder.model({}))
    notes = load(tmp_path / "m.tflite", keep_scales=True).notes
    assert notes[1:] == ["`b`: its codes are wider than float32 and rounded"] * rounded


def test_a_variable_without_a_name_is_refused(tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(written((2, 3), Written("READ_VARIABLE", [-1], (2, 3))))
    with pytest.raises(UnsupportedError, match=r"`READ_VARIABLE`.*not named.*\n.*streaming"):
        load(path)


ROUNDED = ("first/q8", "second/q8", "third/q8")  # quantizers of the layers of `with_tables`
SUM_UNIT = 2**-6  # the coarsest step of their sums, in steps of their results


def with_tables():
    rng, graph = np.random.default_rng(0), Graph("net")
    weights = graph.const(rng.normal(size=(4, 4)).astype("f4"), "w")
    y = graph.add("matmul", graph.input("x", "float32", (None, 4)), weights, name="first")
    y = graph.add("sigmoid", y, name="table")
    y = graph.add("tanh", graph.add("matmul", y, weights, name="second"), name="other")
    graph.outputs["y"] = graph.add("matmul", y, weights, name="third")
    return graph, rng.normal(size=(16, 4)).astype("f4")


@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("arithmetic", ARITHMETICS, ids=lambda a: a.name)
def test_tables_of_functions_are_read_again(arithmetic, codes, tmp_path):
    graph, data = with_tables()
    first = qgraph.quantize(graph, data, profile=arithmetic.name, plan="plain")
    first.save(tmp_path / "out")
    qgraph.export(tmp_path / "out", "tflite", tmp_path / "made", options={"codes": codes})
    path = tmp_path / "made" / FILE
    compared, again = assert_read_again(first, path, data, arithmetic.name, codes)
    assert compared
    lookups = [n for n in again.graph.nodes.values() if n.attrs.get("function") == "tabulated"]
    assert len(lookups) == (4 if arithmetic.gathers_bytes_only else 2)
    network = load_network(again.save(tmp_path / "again"))
    assert not network.program.has_islands


def test_tables_of_a_float_network_have_codes_as_indices(tmp_path):
    """Inputs are codes, and tables round: the file's outputs differ by their own rounding only."""
    graph, data = with_tables()
    made = qgraph.quantize(graph, data, profile="litert", plan="plain")
    made.save(tmp_path / "out")
    qgraph.export(tmp_path / "out", "tflite", tmp_path / "made")
    path = tmp_path / "made" / FILE
    found = load(path)
    assert "its weights were dequantized" in found.notes[0]
    exponents = {n: spec_of(made.graph.nodes[n]).exponent for n in ("x/q8", *ROUNDED)}
    codes = np.random.default_rng(1).integers(-128, 128, (64, 1, 4))
    compared = 0
    for sample in np.ldexp(codes, -exponents["x/q8"]).astype("f4"):
        values = evaluate(found, {found.inputs[0]: sample}, ROUNDED)
        steps = [np.ldexp(values[name], exponents[name]) for name in ROUNDED]
        # LiteRT rounds ties, and sums just below them, in another way.
        if any((np.abs(part % 1 - 0.5) <= SUM_UNIT).any() for part in steps):
            continue
        (held,) = litert(path.read_bytes(), [sample])
        rounded = np.clip(np.rint(steps[-1]), -128, 127)
        np.testing.assert_array_equal(np.ldexp(rounded, -exponents[ROUNDED[-1]]), held)
        compared += 1
    assert compared >= 16


def four_bits(codes):
    """Two codes in a byte, the first one in its lower half."""
    halves = np.append(codes.reshape(-1) & 15, [0] * (codes.size % 2)).reshape(-1, 2)
    return (halves[:, 0] | halves[:, 1] << 4).astype("u1").tobytes()


def test_weights_of_four_bits_are_read(tmp_path):
    """An odd number of codes, with the ends of their range."""
    rng, builder = np.random.default_rng(0), TfliteModelBuilder("m")
    weights = np.append([-8, 7], rng.integers(-8, 8, 13)).reshape(3, 5)
    builder.inputs["x"] = x = builder.tensor("x", (2, 5), "int8", QuantizedScale(4))
    held = builder.tensor("w", (3, 5), "int4", QuantizedScale(3), data=four_bits(weights))
    bias = builder.constant("b", np.array([3, -40, 100], "i4"), QuantizedScale(7))
    made = builder.tensor("y", (2, 3), "int8", QuantizedScale(2))
    builder.outputs["y"] = builder.operator(
        "FULLY_CONNECTED", [x, held, bias], made, "FullyConnectedOptions", 10
    )
    data = builder.model({})
    (tmp_path / "m.tflite").write_bytes(data)
    graph = load(tmp_path / "m.tflite", keep_scales=True)
    (layer,) = (n for n in graph.nodes.values() if n.op == "matmul")
    np.testing.assert_array_equal(graph.constant(layer.inputs[1]) * 8, weights.T)
    for _ in range(8):
        codes = rng.integers(-128, 128, (2, 5)).astype("i1")
        exact = (codes.astype(int) @ weights.T + [3, -40, 100]) / 32
        (wanted,) = litert(data, [codes])
        found = evaluate(graph, {"x": codes / np.float32(16)})["y"] * 4
        ties = exact % 1 == 0.5  # which LiteRT rounds in another way
        np.testing.assert_array_equal(found[~ties], wanted[~ties])


@pytest.mark.parametrize("scale", [QuantizedScale(4), QuantizedScale(4, -3)])
def test_a_cast_takes_the_codes(tmp_path, scale):
    builder = TfliteModelBuilder("m")
    builder.inputs["x"] = x = builder.tensor("x", (3,), "float32")
    codes = builder.constant("c", np.array([1, 2, -128], "i1"), scale)
    made = builder.operator("CAST", [codes], builder.tensor("t", (3,), "float32"), "CastOptions")
    total = builder.tensor("y", (3,), "float32")
    builder.outputs["y"] = builder.operator("ADD", [x, made], total, "AddOptions")
    (tmp_path / "m.tflite").write_bytes(builder.model({}))
    (held,) = litert(builder.model({}), [np.zeros(3, "f4")])
    (found,) = evaluate(load(tmp_path / "m.tflite"), {"x": np.zeros(3, "f4")}).values()
    assert held.tolist() == found.tolist() == [1, 2, -128]


def test_a_cast_to_codes_is_refused(tmp_path):
    builder = TfliteModelBuilder("m")
    builder.inputs["x"] = x = builder.tensor("x", (3,), "float32")
    made = builder.tensor("y", (3,), "int8", QuantizedScale(4))
    builder.outputs["y"] = builder.operator("CAST", [x], made, "CastOptions")
    (tmp_path / "m.tflite").write_bytes(builder.model({}))
    with pytest.raises(UnsupportedError, match="`CAST` to codes"):
        load(tmp_path / "m.tflite")
