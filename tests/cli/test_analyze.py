"""`qgraph analyze` and `--sensitivity`: layers that cost accuracy, as text and as JSON."""

import json

import numpy as np
import pytest

from tests.helpers.cli import run
from tests.helpers.report import Page


@pytest.fixture(scope="module")
def bad_channel(model, samples, tmp_path_factory):
    """The small network, where the weights of one input channel of its first layer are very
    large.
    """
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef.FromString(model.read_bytes())
    for node in graph.node:
        tensor = node.attr["value"].tensor
        if node.op == "Const" and [d.size for d in tensor.tensor_shape.dim] == [3, 3, 3, 6]:
            w = np.frombuffer(tensor.tensor_content, "float32").reshape(3, 3, 3, 6).copy()
            w[:, :, 1] *= 500
            tensor.tensor_content = w.tobytes()
    folder = tmp_path_factory.mktemp("bad")
    (folder / "bad.pb").write_bytes(graph.SerializeToString())
    images = np.load(samples)
    arrays = {k: images[k] * np.float32([1, 1e-3, 1]) for k in images.files}
    np.savez(folder / "c.npz", **arrays)
    return folder / "bad.pb", folder / "c.npz"


def without_warnings(found):
    """The lines of a run before its warnings."""
    return [line for line in found.out.splitlines() if not line.startswith("warning: ")]


def test_a_table_by_harm_with_reason_and_next_command(bad_channel, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    model, data = bad_channel
    found = run("analyze", model, "-c", data)
    assert found.code == 0, found.err
    rows = [line for line in found.out.splitlines() if " dB)" in line]
    assert rows[0].startswith("first ") and "input channel 1 has weights up to" in rows[0]
    assert "its input hardly varies" in rows[0]
    assert without_warnings(found)[-1].startswith(f"next: qgraph quantize {model} -c {data} ")


def test_the_next_command_keeps_what_was_given(bad_channel):
    model, data = bad_channel
    options = ("--profile", "int32-bias", "--limit", 9, "--input-shape", "image=?,8,8,3")
    shown = f"{model} -c {data} --profile int32-bias --limit 9 --input-shape 'image=?,8,8,3'"
    found = run("analyze", model, "-c", data, *options, "--top", 2, "--effort", "plain")
    assert without_warnings(found)[-1] == f"next: qgraph quantize {shown} --effort default -o out"
    found = run("analyze", model, "--effort", "fast", "--mean-bits", "4,8", "-c", data)
    last = f"next: qgraph quantize {model} -c {data} --effort fast --mean-bits 8 -o out"
    assert without_warnings(found)[-1] == last


def test_with_a_plan_bits_layer_by_layer_are_what_is_left(bad_channel):
    model, data = bad_channel
    found = run("analyze", model, "-c", data, "--plan", "correct-bias")
    bits, last = without_warnings(found)[-2:]
    assert bits.endswith("correct-bias --mean-bits 8 -o out") and last.endswith("bias -o out")


def test_json_has_the_same_in_order(bad_channel):
    model, data = bad_channel
    found = json.loads(run("analyze", model, "-c", data, "--json").out)
    entries = found["sensitivity"]
    assert entries[0]["layer"] == "first"
    assert {e["layer"] for e in entries} == {"image", "first", "mean/pool", "second"}
    known = [e["sqnr_db"] for e in entries if e["sqnr_db"] is not None]
    assert known == sorted(known)
    assert all(e["samples"] == 16 for e in entries)
    best = max(entries, key=lambda e: e["all_but_sqnr_db"])
    assert best["layer"] == "first"


def test_top_limits_rows(bad_channel):
    model, data = bad_channel
    out = run("analyze", model, "-c", data, "--top", 1).out
    assert "the worst 1 of them" in out and "second" not in out


def test_quantize_writes_it_for_the_report(bad_channel, tmp_path):
    model, data = bad_channel
    out = tmp_path / "out"
    done = run("quantize", model, "-c", data, "-o", out, "--sensitivity", "--effort", "plain")
    assert "parts with quantizers" in done.out and "input channel 1 has weights" in done.out
    assert done.code == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["sensitivity"][0]["layer"] == "first"
    assert run("report", out).code == 0
    text = Page((out / "report.html").read_text()).text
    assert "all others" in text and "Input channel 1 has weights up to" in text


def test_quantize_alone_does_not(written):
    assert "sensitivity" not in json.loads((written / "manifest.json").read_text())


def test_no_calibration_is_the_same_error_as_in_quantize(model, tmp_path):
    found = run("analyze", model)
    assert found.code == run("quantize", model, "-o", tmp_path / "o").code == 6
    assert "calibration" in found.err


def test_nothing_to_quantize(tmp_path, samples):
    from tests.helpers.tf_graphs import graph_def_of, v1

    made = graph_def_of(lambda: v1.exp(v1.placeholder("float32", (None, 8, 8, 3), "image"), "y"))
    (tmp_path / "float.pb").write_bytes(made.SerializeToString())
    found = run("analyze", tmp_path / "float.pb", "-c", samples)
    assert found.code == 0 and found.out.startswith("No part of this network is quantized.")
    budget = run("analyze", tmp_path / "float.pb", "-c", samples, "--mean-bits", 5)
    assert budget.code == 2 and "no layers with weights" in budget.err


def test_warnings_stand_last(bad_channel):
    model, data = bad_channel
    lines = run("analyze", model, "-c", data).out.splitlines()
    facts = json.loads(run("analyze", model, "-c", data, "--json").out)
    assert lines[-1].startswith("warning: the result is far from the float network: ")
    assert len(facts["warnings"]) == len([line for line in lines if line.startswith("warning: ")])
    assert not any("qgraph analyze" in line for line in lines)


def test_flags_of_the_next_command_are_flags(model, samples):
    found = run("analyze", model, "-c", samples, "--trust", "--top", 1)
    assert f"quantize {model} -c {samples} --trust --effort default" in found.out
