"""Embeddings in `.tflite` files: indices are int32 inputs of the file."""

import numpy as np
import pytest
import tf_keras as keras

pytest.importorskip("tflite", reason="pip install 'qgraph-compiler[tflite]'")
pytest.importorskip("ai_edge_litert", reason="pip install 'qgraph-compiler[tflite]'")
pytest.importorskip("tflite_micro", reason="pip install 'qgraph-compiler[tflite]'")

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from qgraph import quantize
from qgraph.backends.tflite.arithmetic import ARITHMETICS
from qgraph.backends.tflite.tflite_form import FILE, TfliteForm
from qgraph.ir.types import Rounding
from qgraph.runtime import Session
from qgraph.stored import load_network
from qgraph.verification.verify import verify
from tests.helpers.forms import assert_form
from tests.helpers.program_builder import ProgramBuilder

layers = keras.layers
LENGTH = 6
PROFILES = [arithmetic.name for arithmetic in ARITHMETICS]


def keras_network(rows: int) -> keras.Model:
    """Two tables with the same indices, whose rows are added up."""
    keras.utils.set_random_seed(0)
    x = layers.Input((LENGTH,), dtype="int32", name="words")
    h = layers.Embedding(rows, 5)(x) + layers.Embedding(rows, 5)(x)
    h = layers.Conv1D(4, 3, activation="relu")(h)
    return keras.Model(x, layers.Dense(3)(layers.Flatten()(h)))


@pytest.mark.parametrize("codes", [False, True], ids=["floats", "codes"])
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("rows", [50, 256, 1000])
def test_indices_are_inputs_of_the_file(tmp_path, rows, profile, codes) -> None:
    data = np.random.default_rng(0).integers(0, rows, (32, LENGTH), np.int32)
    made = quantize(keras_network(rows), {"words": data}, effort="plain", profile=profile)
    out = made.save(tmp_path / "out")
    found = verify(out, forms=["tflite"])
    assert found.equal and not found.refused
    network, form = load_network(out), TfliteForm(codes)
    assert not form.warnings(network)
    form.write(network, tmp_path)
    kernels = OpResolverType.AUTO if profile == "litert" else OpResolverType.BUILTIN_REF
    program = Interpreter(str(tmp_path / FILE), experimental_op_resolver_type=kernels)
    program.allocate_tensors()
    (given,), (result,) = program.get_input_details(), program.get_output_details()
    assert given["name"] == "words" and given["dtype"] == np.int32
    program.set_tensor(given["index"], data[:1])
    program.invoke()
    values = program.get_tensor(result["index"])
    if codes:
        scale, zero = result["quantization"]
        values = (values.astype(np.float32) - zero) * np.float32(scale)
    (wanted,) = Session.open(out).run({"words": data[:1]}).values()
    np.testing.assert_array_equal(values, wanted)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_written_file_is_read_with_the_same_codes(profile: str, tmp_path) -> None:
    data = np.random.default_rng(0).integers(0, 50, (32, LENGTH), np.int32)
    made = quantize(keras_network(50), {"words": data}, effort="plain", profile=profile)
    TfliteForm().write(load_network(made.save(tmp_path / "out")), tmp_path)
    again = quantize(tmp_path / FILE, {"words": data[:1]}, profile=profile)
    assert "opaque" not in {node.op for node in again.graph.nodes.values()}
    for i in range(len(data)):
        feeds = {"words": data[i : i + 1]}
        (wanted,) = Session.open(tmp_path / "out").run(feeds).values()
        np.testing.assert_array_equal(*again.reference().outputs(feeds).values(), wanted)


def test_means_over_the_steps_that_a_mask_keeps(tmp_path) -> None:
    """Indices that a mask reads too are floats of the file, which round like inputs."""
    keras.utils.set_random_seed(0)
    x = layers.Input((LENGTH,), dtype="int32", name="words")
    h = layers.GlobalAveragePooling1D()(layers.Embedding(50, 5, mask_zero=True)(x))
    model = keras.Model(x, layers.Dense(3)(h))
    data = {"words": np.random.default_rng(0).integers(0, 5, (32, LENGTH), np.int32)}
    made = quantize(model, data, effort="plain", profile="tflm-int16x8")
    found = verify(made.save(tmp_path / "out"), forms=["tflite"])
    assert found.equal and not found.refused


@pytest.mark.parametrize("limits", [{"low": None, "high": 9}, {"low": 3, "high": 9}])
def test_indices_are_limited_as_in_the_program(limits) -> None:
    builder = ProgramBuilder()
    x = builder.step("clip", builder.entry((1, 4), (0, 255), "x"), **limits)
    builder.step("embedding", x, builder.constant(np.arange(20).reshape(10, 2) - 7))
    assert_form(TfliteForm(), builder.program())


@pytest.mark.parametrize("rounding", [Rounding.HALF_EVEN, Rounding.HALF_AWAY])
def test_indices_of_16_bits_are_moved_and_limited_in_int32(rounding: Rounding) -> None:
    """One-hot vectors of integers that JAX writes: all that are too large have the last row."""
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    x = builder.entry((1, 2, 3), (0, 65535), "x", rounding=rounding)
    flat = builder.step("reshape", x, shape=(1, 6))
    low = builder.step("minimum", flat, builder.constant(np.asarray(300)))
    row = builder.step("maximum", low, builder.constant(np.asarray([[0, 1, 2, 3, 4, 299]])))
    builder.step("embedding", row, builder.constant(rng.integers(-128, 128, (301, 2))))
    assert_form(TfliteForm(), builder.program())


def test_codes_that_leave_behind_a_clip_are_no_indices() -> None:
    builder = ProgramBuilder()
    builder.step("clip", builder.entry((1, 4), name="x"), low=-3, high=9)
    assert_form(TfliteForm(), builder.program())


@pytest.mark.parametrize("span", [(-128, 127), (-32768, 32767)], ids=["int8", "int16"])
def test_indices_that_are_codes_of_other_steps_too(span: tuple[int, int]) -> None:
    rounding = Rounding.HALF_EVEN if span[0] == -128 else Rounding.HALF_AWAY
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    x = builder.entry((1, 4), span, "x", rounding=rounding)
    row = builder.step("clip", x, low=0, high=9)
    builder.step("embedding", row, builder.constant(rng.integers(*span, (10, 2))))
    builder.step("clip", x, low=-5, high=5)
    moved = builder.step("clip", x, low=0, high=8)
    low = builder.step("slice", moved, begin=(0, 1), end=(None, None), strides=(1, 1))
    builder.step("embedding", low, builder.constant(rng.integers(*span, (10, 3))))
    assert_form(TfliteForm(), builder.program())
