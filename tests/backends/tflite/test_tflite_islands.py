"""`.tflite` files carry float ops before, between and behind integer layers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from qgraph import Session, export, quantize, verify
from qgraph.backends.tflite import executors
from qgraph.backends.tflite.arithmetic import ARITHMETICS
from qgraph.backends.tflite.floats.float_writer import FloatWriter
from qgraph.backends.tflite.model_builder import metadata_of
from qgraph.backends.tflite.tflite_form import FILE
from qgraph.ir.graph import Graph
from qgraph.stored import load_network
from qgraph.tflite_schema import schema
from tests.helpers.layers import WINDOW
from tests.program.test_segments import SAMPLES as TOP_K_SAMPLES
from tests.program.test_segments import network_with_islands as with_top_k

for package in ("tflite", "ai_edge_litert", "tflite_micro"):
    pytest.importorskip(package, reason="pip install 'qgraph-compiler[tflite]'")

SAMPLES = np.random.default_rng(1).normal(size=(3, 5, 4, 2)).astype(np.float32)
PROFILES = pytest.mark.parametrize("profile", [a.name for a in ARITHMETICS])
TWO = pytest.mark.parametrize("codes", [False, True])


def network_with_islands() -> Graph:
    """Two islands: one that a later segment reads beside an earlier one, one by a quotient."""
    rng, graph = np.random.default_rng(0), Graph("net")

    def layer(x: str, channels: int, name: str) -> str:
        w = graph.const(rng.normal(size=(1, 1, channels, 4)).astype(np.float32), "w")
        return graph.add("conv2d", x, w, name=name, attrs=WINDOW)

    first = layer(graph.input("x", "float32", (None, 5, 4, 2)), 2, "first")
    island = graph.add("log_softmax", first, name="island", attrs={"axis": -1})
    second = layer(island, 4, "second")
    both = graph.add("add", second, first, name="both")
    attrs = {"axes": (1, 2), "keepdims": True}
    largest = graph.add("reduce_max", both, name="largest", attrs=attrs)
    unit = graph.add("div", both, graph.add("exp", largest), name="unit")
    third = layer(unit, 4, "third")
    for name in ("island", "unit"):  # an op with a control edge is not written in others
        graph.replace(replace(graph.nodes[name], control=("first",)))
    graph.outputs["shares"] = graph.add("softmax", third, name="shares", attrs={"axis": -1})
    graph.outputs["again"] = graph.outputs["shares"]
    graph.outputs["input"] = "x"
    graph.outputs["second"] = second
    return graph


@pytest.fixture(scope="module")
def outs(tmp_path_factory):
    """Output directories by profile."""
    made = {}

    def of(profile: str) -> Path:
        if profile not in made:
            network = quantize(network_with_islands(), SAMPLES, effort="plain", profile=profile)
            made[profile] = network.save(tmp_path_factory.mktemp(profile) / "out")
        return made[profile]

    return of


@PROFILES
def test_files_with_more_tensors_than_tflm_preserves_are_compared_alike(
    outs, profile, monkeypatch
) -> None:
    wanted = verify(outs(profile), forms=["tflite"]).compared.tallies
    monkeypatch.setattr(executors, "MOST_PRESERVED", 2)
    found = verify(outs(profile), forms=["tflite"])
    assert found.equal and not found.refused
    given = {entry.tensor for entry in found.network.program.entries}
    for name, tally in found.compared.tallies.items():
        assert tally.tensors | given == wanted[name].tensors | given


@TWO
@PROFILES
def test_every_segment_is_equal_in_every_executor(outs, profile, codes, tmp_path) -> None:
    out = outs(profile)
    network = load_network(out)
    assert len({entry.segment for entry in network.program.entries}) == 3
    export(out, "tflite", tmp_path / "made", options={"codes": codes})
    meta = metadata_of((tmp_path / "made" / FILE).read_bytes())
    assert meta["missing"] is None and len(meta["executors"]) == len(
        verify(out, files=tmp_path / "made").compared.tallies
    )
    found = verify(out, files=tmp_path / "made")
    assert found.equal
    for tally in found.compared.tallies.values():
        assert tally.island_codes == 2 * SAMPLES[0, ..., :1].size * 4
        assert tally.tensors >= {s.output for s in network.program.steps if s.op == "requantize"}
    warnings = json.loads((tmp_path / "made/export.json").read_text()).get("warnings")
    assert bool(warnings) == codes
    if codes:
        assert "compute the float ops behind them on the host" in warnings[0]


def test_the_file_replaces_the_float_network(outs, tmp_path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    out = outs("litert")
    export(out, "tflite", tmp_path / "made")
    runner = Interpreter(model_path=str(tmp_path / "made" / FILE)).get_signature_runner()
    wanted = Session.open(out).run({"x": SAMPLES})
    for i, sample in enumerate(SAMPLES):
        found = runner(x=sample[None])
        assert found.keys() == wanted.keys() == {"shares", "again", "input", "second"}
        for name, array in found.items():
            np.testing.assert_allclose(array[0], wanted[name][i], rtol=1e-4, atol=1e-6)


@TWO
def test_another_float_op_is_found(outs, codes, tmp_path, monkeypatch) -> None:
    """A file whose island computes another function than the network's."""
    operator = FloatWriter.operator

    def wrong(self, op, *args, **fields):
        op = {"LOG_SOFTMAX": "SOFTMAX"}.get(op, op)
        args = [{"LogSoftmaxOptions": "SoftmaxOptions"}.get(a, a) if isinstance(a, str) else a
                for a in args]  # fmt: skip
        return operator(self, op, *args, **fields)

    monkeypatch.setattr(FloatWriter, "operator", wrong)
    export(outs("tflm"), "tflite", tmp_path / "made", options={"codes": codes})
    found = verify(outs("tflm"), files=tmp_path / "made")
    assert not found.equal
    for tally in found.compared.tallies.values():
        assert "island/q8" in tally.differences


def test_another_weight_behind_an_island_is_found(outs, tmp_path) -> None:
    out = outs("litert")
    export(out, "tflite", tmp_path / "made")
    path = tmp_path / "made" / FILE
    data = bytearray(path.read_bytes())
    model = schema().Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    operators = [graph.Operators(i) for i in range(graph.OperatorsLength())]
    *_, last = (one.Inputs(1) for one in operators if one.InputsLength() == 3)
    held = model.Buffers(graph.Tensors(last).Buffer()).DataAsNumpy()
    held[:] = ~held  # a view of the file
    path.write_bytes(data)
    found = verify(out, files=tmp_path / "made")
    assert not found.equal
    (tally,) = found.compared.tallies.values()
    assert {*tally.differences} <= {"third/q8", "third"}


def test_an_op_that_tflite_lacks_is_left_to_the_host_by_name(tmp_path) -> None:
    onnx.save(with_top_k(), tmp_path / "net.onnx")
    out = quantize(tmp_path / "net.onnx", TOP_K_SAMPLES, effort="plain", profile="litert").save(
        tmp_path / "out"
    )
    export(out, "tflite", tmp_path / "made")
    (warning,) = json.loads((tmp_path / "made/export.json").read_text())["warnings"]
    assert "because TFLite does not support `first`: has no operator for `TopK`" in warning
    found = verify(out, files=tmp_path / "made")
    assert found.equal
    assert all(not tally.island_codes for tally in found.compared.tallies.values())
