"""`.tflite` files compute the integer program in executors that are not part of qgraph."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph import Session, export, quantize, verify
from qgraph.backends.tflite.arithmetic import ARITHMETICS, TfliteExecutor
from qgraph.backends.tflite.model_builder import metadata_of
from qgraph.backends.tflite.tflite_form import FILE, TfliteForm
from qgraph.ir.graph import Graph
from qgraph.ir.types import Rounding
from qgraph.program import run
from qgraph.quant.profile import load_profile
from qgraph.stored import load_network
from qgraph.tflite_schema import schema
from tests.helpers.cli import small_network, typical_images
from tests.helpers.forms import assert_form, assert_forms, network_of, refused
from tests.helpers.generators.graphs import WITH_ISLANDS, graphs
from tests.helpers.generators.programs import programs
from tests.helpers.program_builder import ProgramBuilder, requantized
from tests.helpers.quantized import quantized_network

for package in ("tflite", "ai_edge_litert", "tflite_micro"):
    pytest.importorskip(package, reason="pip install 'qgraph-compiler[tflite]'")

FORM = TfliteForm()
PROFILES = [load_profile(arithmetic.name) for arithmetic in ARITHMETICS]
MADE_FOR = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
REFUSALS = ("sums reach", "with a zero point", "an absolute value")
ROUND = {"rounding": "half_even", "overflow": "saturate", "low": -128, "high": 127}


@settings(max_examples=15)
@given(
    graphs(kinds=WITH_ISLANDS),
    st.sampled_from(PROFILES),
    st.tuples(*[st.booleans()] * 3),
    st.integers(0, 99),
)
def test_random_networks(graph: Graph, profile, options, seed) -> None:
    by_channel, signed, codes = options
    signed = signed or profile.signed_activations
    profile = replace(profile, per_channel=by_channel, signed_activations=signed)
    network = quantized_network(graph, profile, seed)
    reason = refused(FORM, network)
    if reason is None:
        assert assert_forms(network, forms=[TfliteForm(codes)], seed=seed)["tflite"]
    else:
        assert any(known in reason for known in REFUSALS), reason


@settings(max_examples=60)
@given(programs())
def test_random_programs(program) -> None:
    if refused(FORM, network_of(program)) is None:
        assert_form(FORM, program)


@pytest.mark.parametrize("rounding", [Rounding.HALF_EVEN, Rounding.DOUBLE])
@pytest.mark.parametrize("op", ["take", "conv2d", "matmul", "mul"])
def test_codes_shifted_far_to_the_left_are_exact_or_refused(op: str, rounding) -> None:
    """Executors load no such layer, or their sums exceed 32 bits before they saturate."""
    entry = Rounding.HALF_EVEN if rounding == Rounding.HALF_EVEN else Rounding.HALF_AWAY
    window = {"strides": (1, 1), "dilations": (1, 1), "pads": ((0, 0), (0, 0)), "groups": 1}
    reasons = {}
    for shift in (0, -6, -7, -8, -14, -15, -16, -22, -23, -24, -29, -31, -32, -58):
        builder = ProgramBuilder()
        shape = (1, 3, 3, 2) if op == "conv2d" else (1, 6)
        x = builder.entry(shape, name="x", rounding=entry)
        y = x
        if op == "take":
            y = builder.step(op, x, axis=1, indices=(1, 2))
        elif op == "mul":
            y = builder.step(op, x, builder.entry(shape, name="y", rounding=entry))
        else:
            w = np.array([[9, -7]] * shape[-1])
            w = builder.constant(w.reshape(1, 1, *w.shape) if op == "conv2d" else w)
            y = builder.step(op, x, w, **(window if op == "conv2d" else {}))
        builder.step("requantize", y, **requantized(shift, rounding=rounding))
        program = builder.program()
        reasons[shift] = refused(FORM, network_of(program))
        if reasons[shift] is None:
            assert_form(FORM, program)
        else:
            assert "shifted" in reasons[shift]
    assert reasons[-7] is None
    assert reasons[-29] is not None


@pytest.fixture(scope="module", params=[profile.name for profile in PROFILES])
def out(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    (folder / "net.pb").write_bytes(small_network().SerializeToString())
    made = quantize(folder / "net.pb", typical_images(), effort="plain", profile=request.param)
    return made.save(folder / "out")


def test_verify_names_each_executor_and_what_it_compared(out) -> None:
    found = verify(out, forms=["tflite"])
    arithmetic = next(a for a in ARITHMETICS if a.name == found.certificate.profile)
    assert found.equal and len(found.compared.tallies) == len(arithmetic.executors)
    for executor, (name, tally) in zip(
        arithmetic.executors, found.compared.tallies.items(), strict=True
    ):
        assert name.startswith(f"tflite: {executor} ") and name[-1].isdigit()
        assert found.certificate.forms[name].elements == tally.elements > 0
        wide = [s.output for s in found.network.program.steps if s.op == "requantize"]
        assert tally.tensors >= {*wide}


def test_a_file_with_another_weight_differs(out, tmp_path) -> None:
    export(out, "tflite", tmp_path / "made")
    path = tmp_path / "made" / FILE
    data = bytearray(path.read_bytes())
    model = schema().Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    weights = next(
        graph.Operators(i).Inputs(1)
        for i in range(graph.OperatorsLength())
        if graph.Operators(i).InputsLength() == 3
    )
    held = model.Buffers(graph.Tensors(weights).Buffer()).DataAsNumpy()
    held[:] = ~held  # a view of the file
    path.write_bytes(data)
    found = verify(out, files=tmp_path / "made")
    assert not found.equal and all(t.wrong for t in found.compared.tallies.values())


def test_the_file_has_names_scales_and_a_signature(out, tmp_path) -> None:
    export(out, "tflite", tmp_path / "made")
    data = (tmp_path / "made" / FILE).read_bytes()
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=data)
    (signature,) = interpreter.get_signature_list().values()
    assert signature["inputs"] == ["x"] or signature["inputs"] == ["image"], signature
    for tensor in interpreter.get_tensor_details():
        scales = tensor["quantization_parameters"]["scales"]
        assert all(np.frexp(scales)[0] == 0.5)
    layers = [
        t["quantization_parameters"]["scales"]
        for t in interpreter.get_tensor_details()
        if len(t["shape"]) == 4 and "weights" in t["name"]
    ]
    assert all(len(scales) > 1 for scales in layers)
    meta = metadata_of(data)
    assert meta["executors"] == [*next(
        a.executors for a in ARITHMETICS if a.name == meta["arithmetic"]
    )]  # fmt: skip


def run_alone(path: Path, inputs: np.ndarray) -> np.ndarray:
    """The first output of a file for each sample, in LiteRT as users run it."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    (given,), (made, *_) = interpreter.get_input_details(), interpreter.get_output_details()
    found = []
    for sample in inputs:
        interpreter.set_tensor(given["index"], sample[None])
        interpreter.invoke()
        found.append(interpreter.get_tensor(made["index"])[0])
    return np.stack(found)


def test_a_softmax_at_the_end_is_in_the_file(tmp_path) -> None:
    rng, graph = np.random.default_rng(0), Graph("net")
    x = graph.input("x", "float32", (None, 6))
    weights = graph.const(rng.normal(size=(6, 4)).astype(np.float32), "w")
    scores = graph.add("matmul", x, weights, name="scores")
    graph.outputs["p"] = graph.add("softmax", scores, name="p")
    data = rng.normal(size=(32, 6)).astype(np.float32)
    made = quantize(graph, data, profile="litert", plan="method=max")
    made.save(tmp_path / "out")
    export(tmp_path / "out", "tflite", tmp_path / "made")
    assert not json.loads((tmp_path / "made/export.json").read_text()).get("warnings")
    found = run_alone(tmp_path / "made" / FILE, data)
    wanted = Session.open(tmp_path / "out").run({"x": data})["p"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert verify(tmp_path / "out", files=tmp_path / "made").equal


def test_inputs_and_outputs_can_be_codes(out, tmp_path) -> None:
    export(out, "tflite", tmp_path / "made", options={"codes": True})
    path = tmp_path / "made" / FILE
    meta, network = metadata_of(path.read_bytes()), load_network(out)
    (entry,), (name, *_) = meta["entries"].values(), meta["exits"]
    (stored,) = (one.stored for one in ARITHMETICS if one.name == meta["arithmetic"])
    assert {entry["type"], meta["exits"][name]["type"]} == {stored.type}
    (own,) = meta["entries"]
    tensor = network.program.tensors[own]
    codes = np.random.default_rng(0).integers(tensor.low, tensor.high + 1, (3, *tensor.shape[1:]))
    wanted = run(network.program, {own: codes}, [name])[name]
    if {TfliteExecutor.XNNPACK, TfliteExecutor.DEFAULT} & {*meta["executors"]}:
        found = run_alone(path, (codes + entry["zero"]).astype(stored.type))
        np.testing.assert_array_equal(found.astype(int) - meta["exits"][name]["zero"], wanted)
    assert verify(out, files=tmp_path / "made").equal


# -- refusals ---------------------------------------------------------------------------------


def refusal_of(builder: ProgramBuilder) -> str:
    reason = refused(FORM, network_of(builder.program()))
    assert reason is not None
    return reason


@pytest.mark.parametrize(
    ("rounding", "reason"),
    [
        ("floor", "rounds floor, but LiteRT with XNNPACK rounds half_even here"),
        ("half_up", "rounds half_up, but LiteRT with XNNPACK rounds half_even here"),
    ],
)
def test_another_rounding_is_refused_by_name(rounding: str, reason: str) -> None:
    builder = ProgramBuilder()
    y = builder.step("matmul", builder.entry((1, 2)), builder.constant([[1, 2], [3, 4]]))
    builder.step("requantize", y, name="layer", **{**ROUND, "rounding": rounding}, shift=3)
    assert f"layer: {reason}" in refusal_of(builder)
