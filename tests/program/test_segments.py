"""Float ops between integer layers: segments of the program, in every form."""

from __future__ import annotations

import json
import time

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import qgraph
from qgraph.errors import UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.types import QuantSpec
from qgraph.program import lower, run, segments
from qgraph.program.islands import islands
from qgraph.runtime.part_times import PartKind, part_times
from qgraph.stored import load_network
from qgraph.stored.manifest import read_manifest
from tests.frontends.onnx.test_loading import f
from tests.helpers.cli import run as command
from tests.helpers.forms import OWN_PROFILES, random_codes
from tests.helpers.quantized import PROFILES, random_network

CODES = QuantSpec(8, True, "input", 4)
SAMPLES = f(32, 3, 8, 8)


def network_with_islands(sums: int = 2) -> onnx.ModelProto:
    """Convolutions, and columns sorted between them, an ONNX op without an integer form."""
    rng = np.random.default_rng(0)
    arrays = {
        "w1": rng.normal(0, 0.3, (8, 3, 3, 3)),
        "w2": rng.normal(0, 0.3, (8, 8, 3, 3)),
        "w3": rng.normal(0, 0.3, (512, 5)),
    }
    held = [numpy_helper.from_array(a.astype("float32"), name) for name, a in arrays.items()]
    held.append(numpy_helper.from_array(np.int64([8]), "all"))
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("TopK", ["b", "all"], ["first", "first_at"], axis=2),
        node("Conv", ["first", "w2"], ["d"], pads=[1, 1, 1, 1]),
        node("Add", ["d", "b"], ["e"]),  # reads a tensor of the segment before
        node("Relu", ["e"], ["relu"]),
        *([node("TopK", ["relu", "all"], ["second", "second_at"], axis=2)] if sums == 2 else []),
        node("Add", ["second" if sums == 2 else "relu", "relu"], ["sum"]),
        node("Flatten", ["sum"], ["flat"]),
        node("Gemm", ["flat", "w3"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "islands",
        [helper.make_tensor_value_info("x", 1, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", 1, ["N", 5])],
        held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("islands")
    onnx.save(network_with_islands(), place / "net.onnx")
    return qgraph.quantize(place / "net.onnx", SAMPLES, effort="plain").save(place / "out")


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(sorted(PROFILES)))
def test_segments_in_a_row_give_the_codes_of_the_program(seed: int, profile: str) -> None:
    try:
        program = lower(random_network(seed, profile))
    except UnsupportedError:
        return
    codes = random_codes(program, seed)
    wanted, known = run(program, codes), dict(codes)
    for part in segments(program):
        known.update(run(part, {e.tensor: known[e.tensor] for e in part.entries}))
    assert sum(len(part.steps) for part in segments(program)) == len(program.steps)
    for name, array in wanted.items():
        np.testing.assert_array_equal(known[name], array, name)


def test_a_network_without_islands_is_one_segment() -> None:
    program = lower(layered())
    assert segments(program) == (program,) and not program.has_islands


def test_islands_name_their_ops_and_ends(folder) -> None:
    network = load_network(folder)
    first, second = islands(network.graph, network.program)
    assert [node.name for node in first.nodes] == ["first"] == [n.name for n in first.causes]
    assert (first.reads, [e.tensor for e in first.feeds]) == (("b",), ["first/q8"])
    assert [entry.segment for entry in network.program.entries] == [0, 1, 2]
    assert second.reads == ("relu",)


def test_the_session_computes_islands_in_float(folder) -> None:
    found = qgraph.Session.open(folder).run({"x": SAMPLES}, batch=5)
    wanted = Reference(load_network(folder).graph).outputs({"x": SAMPLES})
    np.testing.assert_array_equal(found["y"], wanted["y"], strict=True)


def test_every_form_is_equal_and_says_what_is_float(folder) -> None:
    found = qgraph.verify(folder)
    assert found.equal and set(found.refused) <= {"tensorflow", "qonnx", "c", *OWN_PROFILES}
    assert "TensorFlow does not have `TopK`" in found.refused["tensorflow"]
    for name in ("onnx-qdq", "onnx-integer"):
        assert found.compared.tallies[name].island_codes == 1024
    entry = json.loads((folder / "certificate.json").read_text())["islands"][0]
    assert entry == {
        "ops": [{"name": "first", "op": "TopK"}], "reads": ["b"], "feeds": ["first/q8"]
    }  # fmt: skip
    said = command("verify", folder, "-f", "onnx-integer")
    assert "3 integer segments: first (TopK), second (TopK)" in said.out


def test_networks_with_ops_that_tensorflow_lacks_are_written_without_its_files(folder) -> None:
    assert not (folder / "inference.pb").exists()
    warnings = json.loads((folder / "manifest.json").read_text())["warnings"]
    assert any("TensorFlow does not have `TopK` at first" in text for text in warnings)
    assert command("inspect", folder).code == 0


def test_one_file_carries_the_whole_network(folder, tmp_path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    qgraph.export(folder, "onnx-qdq", tmp_path / "qdq")
    session = onnxruntime.InferenceSession(str(tmp_path / "qdq/network.onnx"))
    assert [value.name for value in session.get_inputs()] == ["x"]
    wanted = qgraph.Session.open(folder).run({"x": SAMPLES})["y"]
    np.testing.assert_array_equal(session.run(["y"], {"x": SAMPLES})[0], wanted)

    qgraph.export(folder, "onnx-integer", tmp_path / "integer")
    names = ("quantize", "network", "dequantize")
    chain = [onnxruntime.InferenceSession(str(tmp_path / f"integer/{n}.onnx")) for n in names]
    values = [SAMPLES]
    for one in chain:
        feeds = dict(zip((v.name for v in one.get_inputs()), values, strict=True))
        values = one.run(None, feeds)
    np.testing.assert_array_equal(values[0], wanted)


def layered() -> Graph:
    """One layer on codes."""
    g = Graph("layer")
    codes = g.add("quantize", g.input("x", "float32", (None, 4)), attrs={"spec": CODES})
    g.outputs = {"y": g.add("relu", codes)}
    g.facts.add("calibrated")
    return g


def _with_another_op(path) -> None:
    """Sort the other way, once, in an exported file."""
    model = onnx.load(path)
    node = next(node for node in model.graph.node if node.op_type == "TopK")
    node.attribute.append(helper.make_attribute("largest", 0))
    onnx.save(model, path)


@pytest.mark.parametrize("form", ["onnx-qdq", "onnx-integer"])
def test_another_float_op_in_a_file_is_found(form, folder, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    qgraph.export(folder, form, tmp_path / "files")
    _with_another_op(tmp_path / "files/network.onnx")
    if form == "onnx-integer":
        found = qgraph.verify(folder, files=tmp_path / "files")
        assert not found.equal and "first/q8" in found.compared.tallies[form].differences
    else:
        found = qgraph.verify(folder, files=tmp_path / "files")
        assert not found.equal


def test_c_has_a_function_for_each_segment(folder, tmp_path) -> None:
    qgraph.export(folder, "c", tmp_path / "c")
    header = (tmp_path / "c/net.h").read_text()
    first, second = header.index("void net_run_0("), header.index("void net_run_1(")
    said = header[first:second]
    assert "the host computes in float, from values of b:" in said
    assert "first: TopK" in said and "first becomes first/q8 (rounding: half_even" in said


def test_vectors_name_the_islands(folder, tmp_path) -> None:
    qgraph.export(folder, "vectors", tmp_path / "vectors")
    index = json.loads((tmp_path / "vectors/index.json").read_text())
    assert [[op["name"] for op in one["ops"]] for one in index["islands"]] == [
        ["first"], ["second"]
    ]  # fmt: skip


def test_a_wrong_code_behind_an_island_is_found(folder, monkeypatch) -> None:
    """An executor whose codes are two steps away, although its float op has the right inputs."""
    from qgraph.backends.onnx.onnx_forms import OnnxInteger

    whole = OnnxInteger.executed

    def moved(self, network, place):
        codes = dict(whole(self, network, place))
        codes["second/q8"] = codes["second/q8"] - 2
        return codes

    monkeypatch.setattr(OnnxInteger, "executed", moved)
    found = qgraph.verify(folder, forms=["onnx-integer"])
    assert not found.equal and "second/q8" in found.compared.tallies["onnx-integer"].differences


def assert_shares(found: list[tuple[float, float]]) -> None:
    """Each share is that of the sum of all times, exactly."""
    whole = sum(milliseconds for milliseconds, _ in found)
    assert [share for _, share in found] == [milliseconds / whole for milliseconds, _ in found]


def test_parts_of_a_run_are_timed(folder) -> None:
    parts = part_times(folder, read_manifest(folder))
    assert [part.kind for part in parts] == [
        PartKind.INTEGER, PartKind.ISLAND, PartKind.INTEGER, PartKind.ISLAND, PartKind.INTEGER
    ]  # fmt: skip
    assert [part.closed_by for part in parts if part.closed_by] == [
        ["`TopK` at first"], ["`TopK` at second"]
    ]  # fmt: skip
    assert parts[1].ops == {"TopK": 1} and (parts[1].reads, parts[1].feeds) == (
        ("b",), ["first/q8"]
    )  # fmt: skip
    assert parts[0].ops["conv2d"] == 1 and parts[4].ops["matmul"] == 1
    assert all(part.milliseconds > 0 for part in parts)
    assert_shares([(part.milliseconds, part.share) for part in parts])


def test_each_part_has_its_own_time(folder, monkeypatch) -> None:
    """An island that sleeps takes most of the run; no other part does."""
    step = Reference.step

    def slow(self, node, arguments):
        time.sleep(0.05 * (node.name == "second"))
        return step(self, node, arguments)

    monkeypatch.setattr(Reference, "step", slow)
    parts = part_times(folder, read_manifest(folder))
    assert parts[3].milliseconds > 50
    assert max(parts, key=lambda part: part.share) is parts[3]


def test_inspect_and_the_report_show_what_islands_cost(folder) -> None:
    said = command("inspect", folder).out
    assert "float island" in said and "`TopK` at second" in " ".join(said.split())
    for verb in ("inspect", "report"):
        parts = json.loads(command(verb, folder, "--json").out)["parts"]
        assert [part["kind"] for part in parts][:2] == ["integer", "float island"]
        assert parts[1]["closed_by"] == ["`TopK` at first"]
        assert_shares([(part["milliseconds"], part["share"]) for part in parts])
    command("report", folder)
    page = (folder / "report.html").read_text()
    assert '<section id="islands">' in page and page.count("<td>float island</td>") == 2


def test_inspect_of_a_file_in_the_directory_shows_its_islands(folder) -> None:
    assert "`TopK` at first" in " ".join(command("inspect", folder / "network.npz").out.split())


def test_inspect_of_islands_without_an_integer_program(folder, monkeypatch) -> None:
    def refuse(place):
        raise UnsupportedError("no integer program")

    monkeypatch.setattr("qgraph.runtime.part_times.load_network", refuse)
    said = command("inspect", folder)
    assert said.code == 0 and "Without an integer program, the cost of float islands" in said.out
    assert json.loads(command("inspect", folder, "--json").out)["parts"] == []
