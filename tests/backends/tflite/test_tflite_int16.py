"""`.tflite` files with int16 activations: limits of their kernels, moves, refusals, exports."""

import numpy as np
import pytest

from qgraph import export, quantize, verify
from qgraph.backends.tflite.arithmetic import TFLM_INT16X8, WORDS, TfliteExecutor
from qgraph.backends.tflite.model_builder import metadata_of
from qgraph.backends.tflite.slices import runs_of, unrepeated
from qgraph.backends.tflite.tflite_form import FILE, TfliteForm
from qgraph.ir.types import Rounding
from qgraph.tflite_schema import schema
from tests.helpers.cli import small_network, typical_images
from tests.helpers.forms import assert_forms, network_of, refused
from tests.helpers.program_builder import ProgramBuilder, requantized
from tests.helpers.tflite_operators import layer, run_operator

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


# -- programs ---------------------------------------------------------------------------------


def entry(builder: ProgramBuilder, *shape: int, name: str | None = None, span=WORDS.ends) -> str:
    return builder.entry(shape, span, name, rounding=Rounding.HALF_AWAY)


def compared(builder: ProgramBuilder) -> None:
    """All tensors of a program, from floats and from codes."""
    program = builder.program()
    for form in (TfliteForm(), TfliteForm(codes=True)):
        assert refused(form, network_of(program)) is None
        assert assert_forms(program, forms=[form])["tflite"]


REPEATED = [(0, 0, 1, 1, 2, 2, 3, 3, 4, 4), (0, 0, 0), (2, 2, 0, 0)]
OTHERS = [
    (4, 3, 2, 1, 0),
    (4, 2),
    (3, 2, 1, 0, 1, 2, 3, 4, 3, 2),
    (0, 2, 4),
    (1,),
    (3, 1, 4, 1, 1),
    (0, 1, 2, 3, 4),
    (0, 2, 1),
]


@pytest.mark.parametrize("indices", [*REPEATED, *OTHERS], ids=str)
def test_indices_are_slices_and_repetitions(indices) -> None:
    once, times = unrepeated(indices)
    assert [i for i in once for _ in range(times)] == [*indices]
    assert (times > 1) == (indices in REPEATED)
    assert [i for run in runs_of(indices) for i in run] == [*indices]
    builder = ProgramBuilder()
    x = entry(builder, 1, 5, 5, 3)
    for axis in (1, 2):
        builder.step("take", x, axis=axis, indices=indices)
    compared(builder)


def test_more_indices_than_tflm_joins() -> None:
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    x = entry(builder, 1, 2, 3, 7)
    builder.step("take", x, axis=3, indices=tuple(rng.integers(0, 7, 130).tolist()))
    builder.step("take", x, axis=2, indices=(1,) * 13)
    compared(builder)


@pytest.mark.parametrize("axes", [(1,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3)], ids=str)
def test_maxima_are_pools(axes) -> None:
    builder = ProgramBuilder()
    x = entry(builder, 1, 5, 7, 3)
    for kept in (True, False):
        builder.step("reduce_max", x, axes=axes, keepdims=kept)
    compared(builder)


@pytest.mark.parametrize("span", [WORDS.ends, (-128, 127), (0, 32767)], ids=str)
def test_tables_have_an_entry_for_each_code(span) -> None:
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    table = rng.integers(*WORDS.ends, span[1] - span[0] + 1, endpoint=True)
    table[:2] = WORDS.ends
    builder.step("lookup", entry(builder, 1, 9, 9, 3, span=span), builder.constant(table),
                 offset=span[0])  # fmt: skip
    compared(builder)


def test_rows_of_a_table_and_other_moves() -> None:
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    rows = builder.constant(rng.integers(*WORDS.ends, (256, 5), endpoint=True))
    builder.step("embedding", entry(builder, 1, 4, span=(0, 255)), rows)
    x = entry(builder, 1, 4, 6, 2)
    builder.step("max_pool", x, ksize=(3, 3), strides=(2, 2), pads=((1, 0), (1, 1)))
    builder.step("pad", x, paddings=((0, 0), (1, 0), (0, 2), (0, 0)))
    builder.step("transpose", x, perm=(0, 3, 1, 2))
    builder.step("slice", x, begin=(0, 1, 0, 0), end=(None,) * 4, strides=(1, 2, 1, 1))
    builder.step("abs", entry(builder, 1, 9, span=(-32767, 32767)))
    compared(builder)


@pytest.mark.parametrize("profile", ["litert", "tflm", "tflm-int16x8"])
def test_a_concat_of_many_tensors(profile: str) -> None:
    """TFLM joins ten."""
    span = WORDS.ends if profile == TFLM_INT16X8.name else (-128, 127)
    rounding = Rounding.HALF_EVEN if profile == "litert" else Rounding.HALF_AWAY
    builder = ProgramBuilder()
    names = [builder.entry((1, 2, 3), span, f"x{i}", rounding=rounding) for i in range(23)]
    builder.step("concat", *names, axis=2)
    program = builder.program()
    assert assert_forms(program, forms=[TfliteForm()])["tflite"]


# -- refusals ---------------------------------------------------------------------------------


def layer_program(**requantization: object) -> ProgramBuilder:
    builder = ProgramBuilder()
    y = builder.step("matmul", entry(builder, 1, 2), builder.constant([[100, 2], [3, -128]]))
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
        compared(builder)
    else:
        found = refused(TfliteForm(), network_of(builder.program()))
        assert found is not None and "layer: " in found and reason in found, found


def test_too_many_slices_are_refused() -> None:
    builder, order = ProgramBuilder(), np.random.default_rng(0).permutation(400)
    builder.step("take", entry(builder, 1, 400), name="mixed", axis=1, indices=(*order.tolist(),))
    found = refused(TfliteForm(), network_of(builder.program()))
    assert found is not None and "mixed: picks 400 indices" in found


def test_absolute_values_of_the_lowest_code_are_refused() -> None:
    builder = ProgramBuilder()
    builder.step("abs", entry(builder, 1, 3), name="size")
    found = refused(TfliteForm(), network_of(builder.program()))
    assert found is not None and "size: is an absolute value up to 32,768" in found


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
