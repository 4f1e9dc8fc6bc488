"""QLinear ops compute the integer program in ONNX Runtime, with and without optimizations."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

from qgraph import export, verify
from qgraph.backends.onnx.onnx_forms import FILE, OnnxQoperator
from qgraph.backends.onnx.qoperator_groups import MOST_FACTORS
from qgraph.compiler import quantize
from qgraph.exports import index_of
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import QuantSpec
from qgraph.program import Program, lower, run
from qgraph.quant.profile import load_profile
from qgraph.stored import load_network
from qgraph.stored.write import save
from tests.helpers.digits_directory import digits_directory
from tests.helpers.forms import assert_form, carried, network_of
from tests.helpers.generators.programs import programs
from tests.helpers.program_builder import ProgramBuilder, padded_pool, requantized
from tests.helpers.quantized import network_programs

onnxruntime = pytest.importorskip("onnxruntime")
FORM = OnnxQoperator()
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads": ((1, 1), (0, 2))}
BYTES = ((-128, 127), (0, 255))
REFUSED = "float32 outputs are exact up to"


@settings(max_examples=25)
@given(network_programs())
def test_random_networks(program) -> None:
    assert_form(FORM, carried(FORM, program, REFUSED))


@settings(max_examples=60)
@given(programs(None, ("half_even",), ("saturate",), (2, 4, 8, 8, 8, 8, 8, 16)))
def test_random_programs(program) -> None:
    assert_form(FORM, carried(FORM, program, REFUSED))


@settings(max_examples=25)
@given(programs())
def test_random_programs_of_any_rounding(program) -> None:
    assert_form(FORM, carried(FORM, program, REFUSED))


def ops_of(program: Program) -> Counter:
    """Ops in the file of a program."""
    return Counter(node.op_type for node in FORM.emit(network_of(program)).graph.node)


def alone(program: Program, codes: dict[str, np.ndarray], path) -> dict[str, np.ndarray]:
    """Codes of the outputs, as users run the file: a session without options."""
    FORM.write(network_of(program), path)
    session = onnxruntime.InferenceSession(str(path / FILE), providers=["CPUExecutionProvider"])
    feeds = {f"float/{name}": value.astype(np.float32) for name, value in codes.items()}
    exponents = [program.tensors[name].exponent for name in program.exits]
    found = zip(program.exits, session.run(list(program.exits), feeds), exponents, strict=True)
    return {name: np.ldexp(value, exponent) for name, value, exponent in found}


@pytest.mark.parametrize("made", BYTES)
@pytest.mark.parametrize("x", BYTES)
@pytest.mark.parametrize("w", [*BYTES, (-8, 7)])
@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d", "pointwise", "matmul", "gemm"])
def test_layers_of_extreme_codes(op, x, w, made, tmp_path) -> None:
    """Products of the largest codes, where sums of two exceed 16 bits."""
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    flat = op in ("matmul", "gemm")
    shape = (1, 70) if flat else (1, 5, 4, 16)
    of_weights = {"conv2d": (3, 3, 16, 5), "pointwise": (1, 1, 16, 5)}.get(op, (3, 3, 16, 1))
    of_weights = (70, 9) if flat else of_weights
    window = {**WINDOW, "pads": ((0, 0), (0, 0))} if op == "pointwise" else WINDOW
    attrs = {} if flat else window if op.startswith("depth") else {**window, "groups": 1}
    step = "matmul" if flat else "conv2d" if op == "pointwise" else op
    entry = builder.entry(shape, x, "x")
    drawn = rng.choice(w, of_weights)
    channels = of_weights[2] if op == "depthwise_conv2d" else of_weights[-1]
    shift = 12 if op == "pointwise" else tuple(9 + i % 5 for i in range(channels))
    for codes in (np.full(of_weights, w[0]), np.full(of_weights, w[1]), drawn):
        weights = builder.constant(codes, exponent=shift)
        y = builder.step(step, entry, weights, **attrs)
        if op != "matmul":
            bias = builder.constant(rng.integers(-(2**20), 2**20, channels), exponent=shift)
            y = builder.step("add", y, bias)
        builder.step("requantize", y, **requantized(shift, made))
    program = builder.program()
    linear = {"matmul": "QLinearMatMul", "gemm": "QGemm"}.get(op, "QLinearConv")
    assert ops_of(program)[linear] == 3
    batches = [np.full(shape, x[0]), np.full(shape, x[1]), *(rng.choice(x, shape) for _ in "abcd")]
    codes = {"x": np.concatenate(batches)}
    assert_form(FORM, program, codes=codes)
    expected = run(program, codes)
    for name, found in alone(program, codes, tmp_path).items():
        np.testing.assert_array_equal(found, expected[name])


@pytest.mark.parametrize("spans", [*product(BYTES, BYTES, BYTES)], ids=str)
@pytest.mark.parametrize("op", ["add", "mul"])
def test_sums_and_products_of_all_pairs_of_codes(op, spans) -> None:
    first, second, made = spans
    builder = ProgramBuilder()
    x, y = builder.entry((1, 256), first, "x"), builder.entry((1, 256), second, "y")
    for shift in (-3, 0, 1, 2, 5) if op == "add" else (0, 1, 6, 7, 11):
        z = builder.step(op, x, y)
        builder.step("requantize", z, **requantized(shift, made))
    if op == "add":
        for left, shift in ((3, 4), (8, 9)):  # operands on other scales
            wide = builder.step("requantize", x, **requantized(-left, (-(2**17), 2**17 - 1)))
            z = builder.step(op, wide, builder.constant(np.arange(256) + second[0]))
            builder.step("requantize", z, **requantized(shift, made))
    a, b = np.meshgrid(np.arange(first[0], first[1] + 1), np.arange(second[0], second[1] + 1))
    program = builder.program()
    assert ops_of(program)["QLinearAdd" if op == "add" else "QLinearMul"] >= 5
    assert_form(FORM, program, codes={"x": a, "y": b})


@pytest.mark.parametrize("made", [*BYTES, (-8, 7), (0, 15)])
@pytest.mark.parametrize("x", BYTES)
def test_every_tie_is_rounded_to_even(x, made) -> None:
    """Rescaled codes, also far beyond the ends of 8 and of 32 bits."""
    builder = ProgramBuilder()
    entry = builder.entry((1, 8), x, "x")
    for shift in (*range(-4, 12), -22, -23, -24, -25, -40, 40):
        builder.step("requantize", entry, **requantized(shift, made))
        limited = builder.step("clip", entry, low=3, high=100)
        builder.step("requantize", limited, **requantized(shift, made))
    codes = {"x": np.arange(x[0], x[1] + 1).reshape(-1, 8)}
    assert_form(FORM, builder.program(), codes=codes)


@pytest.mark.parametrize("second", BYTES)
@pytest.mark.parametrize("first", BYTES)
def test_products_of_two_matrices(first, second, tmp_path) -> None:
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    x, y = builder.entry((1, 3, 16), first, "x"), builder.entry((1, 16, 5), second, "y")
    builder.step("requantize", builder.step("batch_matmul", x, y), **requantized(11))
    program = builder.program()
    assert ops_of(program)["QLinearMatMul"] == 1
    codes = {"x": rng.choice(first, (9, 3, 16)), "y": rng.choice(second, (9, 16, 5))}
    assert_form(FORM, program, codes=codes)
    (found,), expected = alone(program, codes, tmp_path).values(), run(program, codes)
    np.testing.assert_array_equal(found, expected[program.exits[0]])


@pytest.mark.parametrize(("most", "linear"), [(2**24, True), (2**24 + 1, False)])
def test_sums_past_float32_are_integer_ops(most: int, linear: bool) -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 300), (0, 255), "x")
    bias = most - 255 * 200
    y = builder.step("matmul", x, builder.constant(np.eye(300, 2, dtype=int) * 200))
    y = builder.step("add", y, builder.constant([bias, bias]))
    builder.step("requantize", y, **requantized(17, (0, 255)))
    program = builder.program()
    assert (ops_of(program)["QGemm"] == 1) == linear
    assert_form(FORM, program)


def test_codes_with_other_zero_points_are_joined() -> None:
    builder = ProgramBuilder()
    x, y = builder.entry((1, 2, 2, 3), name="x"), builder.entry((1, 2, 2, 3), (0, 255), "y")
    x = builder.step("requantize", x, **requantized(1, (-64, 63)))
    y = builder.step("requantize", y, **requantized(1, (0, 127)))
    joined = builder.step("concat", x, y, axis=3)
    twice = builder.step("concat", x, x, axis=1)
    padded = builder.step("pad", x, paddings=((0, 0), (1, 1), (0, 2), (0, 0)))
    for value in (joined, twice, padded):
        w = builder.constant(np.arange(builder.tensors[value].shape[-1] * 2).reshape(1, 1, -1, 2))
        y = builder.step("conv2d", value, w, **{**WINDOW, "groups": 1})
        builder.step("requantize", y, **requantized(4))
    assert_form(FORM, builder.program())


def test_tables_without_codes_below_zero_have_a_signed_result() -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 4, 4, 2), name="x")
    table = builder.constant(np.arange(256) % 100)
    y = builder.step("lookup", x, table, offset=-128, span=(-128, 127))
    pooled = {"ksize": (2, 2), "strides": (1, 1), "pads": ((0, 1), (1, 0))}
    builder.step("max_pool", builder.step("requantize", y, **requantized(1)), **pooled)
    builder.step("requantize", builder.step("reshape", y, shape=(1, 32)), **requantized(2))
    assert_form(FORM, builder.program(), codes={"x": np.arange(-128, 128).reshape(8, 4, 4, 2)})


@pytest.mark.parametrize("made", BYTES)
@pytest.mark.parametrize("x", BYTES)
@pytest.mark.parametrize("factors", [3, MOST_FACTORS, MOST_FACTORS + 1])
def test_averages_with_a_factor_for_each_position(factors, x, made) -> None:
    """Each factor has a QLinearConv, and Where takes its results; too many are integer ops."""
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    entry = builder.entry((1, 6, 5, 3), x, "x")
    ones = builder.constant(np.ones((3, 3, 3, 1), np.int64))
    sums = builder.step("depthwise_conv2d", entry, ones, **{**WINDOW, "pads": ((1, 1), (1, 1))})
    places = (np.arange(30) % factors + 200).reshape(1, 6, 5, 1)
    scaled = builder.step("mul", sums, builder.constant(places))
    builder.step("requantize", scaled, **requantized(10, made))
    program = builder.program()
    linear = factors <= MOST_FACTORS
    assert ops_of(program)["QLinearConv"] == (factors if linear else 0)
    assert ops_of(program)["Where"] == (factors - 1 if linear else 0)
    drawn = [rng.choice(x, (1, 6, 5, 3)) for _ in range(8)]
    codes = np.concatenate([*drawn, rng.integers(x[0], x[1] + 1, (8, 6, 5, 3))])
    assert_form(FORM, program, codes={"x": codes})


def test_padding_that_is_pooled_is_zero() -> None:
    for of_sums in (False, True):
        program, codes = padded_pool(-128, of_sums=of_sums)
        assert_form(FORM, program, codes=codes)


def test_a_layer_whose_sums_are_bytes_is_an_operand_of_a_sum() -> None:
    """An average of one element: the sums of its layer have 8 bits, and nothing is shifted."""
    graph = Graph("net")
    x = graph.input("x", "float32", (None, 1, 2, 4))
    codes, one, sums = (
        QuantSpec(8, True, "input", 5, group="inputs"),
        QuantSpec(1, False, "constant", 0),
        QuantSpec(8, True, "activation", 4),
    )
    x = graph.add("quantize", x, attrs={"spec": codes})
    ones = graph.add(
        "quantize", graph.const(np.ones((1, 1, 4, 1), np.float32)), attrs={"spec": one}
    )
    window = {"strides": (1, 1), "dilations": (1, 1), "padding": "valid", "pool": True}
    pool = graph.add("depthwise_conv2d", x, ones, attrs=window)
    pool = graph.add("quantize", pool, attrs={"spec": replace(codes, role="activation")})
    graph.outputs["y"] = graph.add("quantize", graph.add("add", pool, x), attrs={"spec": sums})
    graph.facts.add("calibrated")
    program = lower(graph)
    assert_form(FORM, carried(FORM, program, REFUSED))
    assert ops_of(program)["QLinearConv"] == ops_of(program)["QLinearAdd"] == 1


def test_outputs_past_float32_are_refused() -> None:
    builder = ProgramBuilder()
    builder.step("mul", builder.entry((1, 1)), builder.constant([2**18]), name="layer")
    reason = FORM.refusal(network_of(builder.program()))
    assert reason is not None
    assert "layer: its codes reach 33,554,432, but float32 outputs are exact up to" in reason


# -- the digits network ----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["int32-bias", "esp32-p4"])
def out(request, tmp_path_factory):
    return digits_directory(tmp_path_factory.mktemp("digits"), request.param)


def test_verify_compares_every_tensor(out) -> None:
    found = verify(out, forms=["onnx-qoperator"])
    assert found.equal
    assert found.certificate.forms["onnx-qoperator"].elements > 87_000


def test_layers_of_a_network_are_qlinear_ops(out, tmp_path) -> None:
    export(out, "onnx-qoperator", tmp_path / "made")
    path = tmp_path / "made" / FILE
    ops = Counter(node.op_type for node in onnx.load(path).graph.node)
    assert (ops["QLinearConv"], ops["QGemm"], ops["QLinearAdd"]) == (13, 1, 1)
    assert not {"Conv", "Gemm", "MatMul"} & ops.keys()
    assert not index_of(tmp_path / "made").warnings


def test_layers_that_round_differently_are_named(digits_tosa, tmp_path) -> None:
    export(digits_tosa, "onnx-qoperator", tmp_path / "made")
    (warning,) = index_of(tmp_path / "made").warnings
    assert warning.startswith("12 of 12 layers are not QLinear ops, but ConvInteger")
    assert "`model/stem/Conv2D`" in warning


def test_a_file_with_another_weight_differs(out, tmp_path) -> None:
    export(out, "onnx-qoperator", tmp_path / "made")
    path = tmp_path / "made" / FILE
    model = onnx.load(path)
    layer = next(node for node in model.graph.node if node.op_type == "QLinearConv")
    weights = next(one for one in model.graph.initializer if one.name == layer.input[3])
    weights.raw_data = bytes(255 - byte for byte in weights.raw_data)
    onnx.save(model, path)
    found = verify(out, files=tmp_path / "made")
    assert not found.equal and found.certificate.forms["onnx-qoperator"].differences > 0


def test_a_session_without_options_gives_the_codes(out, tmp_path) -> None:
    export(out, "onnx-qoperator", tmp_path / "made")
    session = onnxruntime.InferenceSession(str(tmp_path / "made" / FILE))
    (given,), network = session.get_inputs(), load_network(out)
    (entry,) = network.program.entries
    images = np.random.default_rng(1).uniform(0, 16, (32, 8, 8, 1)).astype(np.float32)
    steps = np.rint(np.ldexp(images, entry.spec.exponent))
    codes = np.clip(steps, entry.spec.lo, entry.spec.hi).astype(np.int64)
    (name,) = network.program.exits
    scores = np.ldexp(run(network.program, {entry.tensor: codes})[name].astype(np.float64),
                      -network.program.tensors[name].exponent)  # fmt: skip
    shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(session.run(None, {given.name: images})[0], shares, rtol=1e-5)


def codes_for(program: Program, inputs: np.ndarray) -> np.ndarray:
    """The values of a program's only output."""
    (entry,), (name,) = program.entries, program.exits
    steps = np.rint(np.ldexp(inputs, entry.spec.exponent))
    codes = np.clip(steps, entry.spec.lo, entry.spec.hi).astype(np.int64)
    found = run(program, {entry.tensor: codes})[name]
    return np.ldexp(found.astype(np.float64), -program.tensors[name].exponent)


def test_a_file_is_read_back_with_the_same_codes(tmp_path) -> None:
    rng = np.random.default_rng(0)
    graph = Graph("net")
    x = graph.input("x", "float32", (None, 64))
    names = iter("abcdef")

    def layer(value: str, inputs: int, outputs: int) -> str:
        name = next(names)
        weights, bias = rng.normal(size=(inputs, outputs)), rng.normal(size=outputs)
        w = graph.const(weights.astype(np.float32), f"{name}/w")
        made = graph.add("matmul", value, w, name=f"{name}/sums")
        return graph.add("add", made, graph.const(bias.astype(np.float32), f"{name}/b"), name=name)

    hidden = graph.add("relu", layer(x, 64, 16), name="hidden")
    graph.outputs["y"] = layer(hidden, 16, 4)
    data = rng.normal(size=(64, 64)).astype(np.float32)
    options = {"plan": "method=max", "profile": load_profile("int32-bias")}
    made = quantize(graph, data, **options)
    export(save(made, tmp_path / "out"), "onnx-qoperator", tmp_path / "made")
    again = quantize(load(tmp_path / "made" / FILE), data, **options)
    inputs = rng.normal(size=(200, 64))
    expected, found = (codes_for(lower(one.graph), inputs) for one in (made, again))
    np.testing.assert_array_equal(found, expected)
