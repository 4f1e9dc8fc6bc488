"""`.tflite` files with int16 activations: limits of their kernels, refusals, exports."""

import numpy as np
import pytest

from qgraph import export, quantize, verify
from qgraph.backends.tflite.arithmetic import (
    BYTES,
    TFLM_INT16X8,
    WORDS,
    TfliteExecutor,
)
from qgraph.backends.tflite.model_builder import metadata_of
from qgraph.backends.tflite.tflite_form import FILE, TfliteForm
from qgraph.tflite_schema import schema
from tests.helpers.cli import small_network, typical_images
from tests.helpers.forms import network_of, refused
from tests.helpers.program_builder import ProgramBuilder, requantized
from tests.helpers.tflite_operators import layer, run_operator
from tests.helpers.tflite_programs import assert_tflite, wide_entry

for package in ("tflite", "ai_edge_litert", "tflite_micro"):
    pytest.importorskip(package, reason="pip install 'qgraph-compiler[tflite]'")

LIMITS = TFLM_INT16X8.sums
EXECUTORS = (*TFLM_INT16X8.executors, *TFLM_INT16X8.on_codes)
CODES = np.arange(-8, 8).reshape(1, 4, 4, 1)


def sums_are_exact(op: str, executor, shift: int, biases: np.ndarray) -> bool:
    model, x, sums = layer(op, shift, biases=biases, stored=WORDS, codes=CODES)
    half = 1 << shift - 1 if shift > 0 else 0
    wanted = (sums + half) >> shift if shift > 0 else sums << -shift
    return np.array_equal(run_operator(executor, model, [x]), np.clip(wanted, *WORDS.ends))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("shift", [-6, -1, 0, 1, 8, 15, 20, 32, 33, 40])
def test_sums_of_64_bits_are_exact_within_the_limits(op: str, executor, shift: int) -> None:
    """Sums just within the limit and random ones, near every tie of the result's range."""
    rng, most = np.random.default_rng(shift + 6), LIMITS.largest_at(shift) - 8
    drawn = rng.integers(0, most, 64) >> rng.integers(0, 47, 64)
    ties = (2 * rng.integers(0, 1 << 15, 64) + 1) << max(shift - 1, 0)
    biases = np.concatenate([[most], drawn, ties[ties < most]])
    assert sums_are_exact(op, executor, shift, np.concatenate([biases, -biases]))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("shift", [-6, 0, 1, 8, 15, 33, 36])
def test_larger_sums_wrap_or_vanish(executor, shift: int) -> None:
    """Results of more than 32 bits are cut off before they saturate, and far shifts give 0."""
    for times in (-2, 2):
        beyond = np.array([times * LIMITS.largest_at(shift)])
        assert not sums_are_exact("CONV_2D", executor, shift, beyond)


def test_left_shifts_beyond_the_specification_are_refused() -> None:
    assert LIMITS.largest_at(-7) == 0


# -- refusals ---------------------------------------------------------------------------------


def layer_program(**requantization: object) -> ProgramBuilder:
    builder = ProgramBuilder()
    y = builder.step("matmul", wide_entry(builder, 1, 2), builder.constant([[100, 2], [3, -128]]))
    builder.step("requantize", y, name="layer", **{**ROUND, **requantization})
    return builder


ROUND = dict(requantized(9, WORDS.ends, "half_up"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rounding": "floor"}, "rounds floor, but LiteRT"),
        ({"rounding": "half_away"}, "rounds half_away, but LiteRT"),
        ({"low": 0, "high": 65535}, "do not fit in signed 16 bits"),
        ({"overflow": "wrap"}, "wraps around"),
        ({"shift": -7}, "are shifted by -7"),
        ({"shift": 33, "low": -2, "high": 1}, None),
        ({}, None),
    ],
    ids=str,
)
def test_a_layer_is_exact_or_refused_by_name(change, reason) -> None:
    builder = layer_program(**change)
    if reason is None:
        assert_tflite(builder.program())
    else:
        found = refused(TfliteForm(), network_of(builder.program()))
        assert found is not None and "layer: " in found and reason in found, found


@pytest.mark.parametrize("op", ["add", "sub"])
@pytest.mark.parametrize("rounding", ["half_up", "half_away"])
@pytest.mark.parametrize("shape", [(1, 3), (1, 2, 2, 3)], ids=str)
def test_a_constant_is_added_as_executors_round(op: str, rounding: str, shape) -> None:
    """ADD rounds half away, a layer with weights of 1 half up."""
    builder = ProgramBuilder()
    total = builder.step(op, wide_entry(builder, *shape), builder.constant([-300, 1, 32767]))
    total = builder.step("clip", total, low=-60000, high=50001)
    builder.step("requantize", total, name="y", **requantized(2, WORDS.ends, rounding))
    assert_tflite(builder.program())


def test_a_constant_along_other_axes_is_refused_where_add_rounds_in_another_way() -> None:
    builder = ProgramBuilder()
    total = builder.step("add", wide_entry(builder, 1, 2, 3), builder.constant([[1], [2]]))
    builder.step("requantize", total, name="y", **requantized(1, WORDS.ends, "half_up"))
    found = refused(TfliteForm(), network_of(builder.program()))
    assert found is not None and "y: rounds half_up, but LiteRT" in found


def test_absolute_values_of_the_lowest_code_are_refused() -> None:
    builder = ProgramBuilder()
    builder.step("abs", wide_entry(builder, 1, 3), name="size")
    found = refused(TfliteForm(), network_of(builder.program()))
    assert found is not None and "size: is an absolute value up to 32,768" in found


@pytest.mark.parametrize("span", [WORDS.ends, BYTES.ends], ids=["int16", "int8"])
def test_weights_outside_of_the_specification_are_named(span: tuple[int, int]) -> None:
    """XNNPACK has kernels for int8 only."""
    builder, rounding = ProgramBuilder(), "half_up" if span == WORDS.ends else "double"
    y = builder.step(
        "matmul", wide_entry(builder, 1, 2, span=span), builder.constant([[-128], [1]])
    )
    builder.step("requantize", y, name="layer", **requantized(9, span, rounding))
    (warning,) = TfliteForm(codes=True).warnings(network_of(builder.program()))
    assert "weights of `layer` contain -128" in warning
    assert ("XNNPACK" in warning) == (span == BYTES.ends)


# -- exports ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    (folder / "net.pb").write_bytes(small_network().SerializeToString())
    made = quantize(folder / "net.pb", typical_images(), profile=TFLM_INT16X8.name, plan="plain")
    return made.save(folder / "out")


@pytest.mark.parametrize("codes", [False, True])
def test_types_and_executors_of_a_file(out, codes: bool, tmp_path) -> None:
    """LiteRT's default kernels convert floats differently, so they run files of codes only."""
    export(out, "tflite", tmp_path / "made", options={"codes": codes})
    data = (tmp_path / "made" / FILE).read_bytes()
    graph = schema().Model.GetRootAs(data, 0).Subgraphs(0)
    kinds = {value: name for name, value in vars(schema().TensorType).items()}
    held = {kinds[graph.Tensors(i).Type()] for i in range(graph.TensorsLength())}
    assert held - {"FLOAT32"} == {"INT8", "INT16", "INT32", "INT64"}  # INT32: shapes
    assert ("FLOAT32" in held) != codes
    executors = TFLM_INT16X8.executors
    assert metadata_of(data)["executors"] == [*(EXECUTORS if codes else executors)]
    assert (TfliteExecutor.DEFAULT in metadata_of(data)["executors"]) == codes
    found = verify(out, files=tmp_path / "made")
    assert found.equal and len(found.compared.tallies) == (3 if codes else 2)


def test_every_form_has_the_codes_of_the_profile(out) -> None:
    found = verify(out)
    assert found.equal and found.refused.keys() == {"onnx-qdq", "qonnx", "onnx-xint8", "tosa"}
    for form in ("onnx-qdq", "qonnx"):
        assert "float32 is exact up to 16,777,216" in found.refused[form]
