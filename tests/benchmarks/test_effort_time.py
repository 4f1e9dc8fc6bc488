"""Efforts are timed on the networks, profiles and efforts that are asked for."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks import effort_time
from benchmarks.effort_steps import OTHER, STEPS
from benchmarks.effort_steps import table as steps_table
from benchmarks.effort_time import ALL, PROFILE, USUAL, Run, parse_run, tables
from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import freeze
from benchmarks.real.at_logits import at_logits, onnx_at_logits
from benchmarks.real.cases import Case
from benchmarks.real.measure import same_class, sqnr
from qgraph.choices import Effort
from qgraph.frontends import load
from qgraph.frontends.tf.importing import import_graph_def
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph


def test_a_run_is_a_network_with_a_profile_and_efforts_if_given():
    assert parse_run("digits") == Run("digits", PROFILE, USUAL)
    assert parse_run("digits:graffitist-int4") == Run("digits", "graffitist-int4", USUAL)
    assert parse_run("digits::fast,plain") == Run("digits", PROFILE, (Effort.FAST, Effort.PLAIN))


@pytest.mark.parametrize("text", ["none", "digits::none", "digits::fast,"])
def test_unknown_networks_and_efforts_are_named(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"unknown .* choose"):
        parse_run(text)


def test_efforts_and_other_tools_are_compared_on_the_same_images(monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    images = np.random.default_rng(0).random((48, 28, 28, 1), np.float32)
    graph = import_graph_def(freeze(FAMILIES["vgg"]()))
    case = Case("vgg", graph, images[:16], images[16:], "random images")
    monkeypatch.setattr(effort_time, "NETWORKS", {"vgg": lambda: case})
    monkeypatch.setenv("QGRAPH_CACHE", str(tmp_path))
    runs = [Run("vgg", profile, (Effort.PLAIN,)) for profile in (PROFILE, "graffitist-int4")]
    (table,) = tables(runs, repeats=2, peers=True)
    assert [(row["profile"], row["effort"]) for row in table.rows] == [
        (PROFILE, "plain"), ("graffitist-int4", "plain"),
        (None, "LiteRT"), (None, "LiteRT, batch norms folded"),
        (None, "ONNX Runtime"), (None, "ONNX Runtime, batch norms folded"),
    ]  # fmt: skip
    assert all(row["seconds"] > 0 and row["samples"] == 16 for row in table.rows)
    assert all(0 <= row["as float"][0] <= 1 for row in table.rows)
    assert all(row["SQNR dB"] is not None for row in table.rows)


def test_what_a_tool_cannot_convert_is_a_row(monkeypatch):
    graph = import_graph_def(freeze(FAMILIES["vgg"]()))
    images = np.zeros((4, 28, 28, 1), np.float32)
    case = Case("vgg", graph, images, images, "zeros")

    def fails(*given):
        raise OSError("no such op\nin this tool")

    def runs_not(model, case):
        return lambda images: fails()

    monkeypatch.setattr(effort_time, "PEERS", {"one": fails, "other": runs_not})
    rows = [*effort_time._of_peers(case)]
    assert [cells[-1] for _, cells in rows] == ["fails: no such op"] * 4


@pytest.mark.parametrize("last", ["Softmax", "Sigmoid"])
def test_other_tools_get_networks_without_a_final_softmax(tmp_path, last):
    """The same in both formats: the values that the agreement of qgraph is measured at."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)  # of whole numbers, whose products are exact in float32
    weights, images = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((4, 3), (2, 4)))
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, size])
        for name, size in (("x", 4), ("y", 3))
    )
    layer = onnx.helper.make_node("MatMul", ["x", "w"], ["h"])
    constants = [onnx.numpy_helper.from_array(weights, "w")]
    nodes = [layer, onnx.helper.make_node(last, ["h"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "net", [x], [y], constants)
    onnx.save(onnx.helper.make_model(graph, ir_version=8), path := tmp_path / "net.onnx")
    whole = load(path)
    if last == "Sigmoid":
        assert onnx_at_logits(path) == path.read_bytes()
        assert at_logits(whole).outputs == whole.outputs
        return
    (found,) = onnxruntime.InferenceSession(onnx_at_logits(path)).run(None, {"x": images})
    np.testing.assert_array_equal(found, images @ weights)
    np.testing.assert_array_equal(*evaluate(at_logits(whole), {"x": images}).values(), found)


def test_an_output_without_softmax_stays_whole():
    """Other tools have other layouts: an output of [n, classes] is compared, not [n, 1, 1, c]."""
    graph = Graph("net")
    pixels = graph.input("x", "float32", (None, 1, 1, 4))
    rows = graph.add("reshape", graph.add("relu", pixels), attrs={"shape": (-1, 4)})
    graph.outputs = {"y": rows}
    assert at_logits(graph).outputs == graph.outputs


@pytest.mark.parametrize("compare", [sqnr, same_class])
def test_arrays_of_different_shapes_are_not_compared(compare):
    with pytest.raises(ValueError, match=r"cannot compare shape \(2, 1, 3\) with \(2, 3, 1\)"):
        compare(np.ones((2, 1, 3)), np.ones((2, 3, 1)))


def test_each_step_of_default_takes_time():
    images = np.random.default_rng(0).random((48, 28, 28, 1), np.float32)
    graph = import_graph_def(freeze(FAMILIES["vgg"]()))
    (row,) = steps_table(
        {"vgg": lambda: Case("vgg", graph, images[:32], images[32:], "random images")}
    ).rows
    assert [*row] == ["network", *STEPS, OTHER]
    assert all(row[step] > 0 for step in (*STEPS, OTHER))


def test_networks_without_a_choice_are_those_of_the_aims():
    assert len(ALL) == len({(run.network, run.profile) for run in ALL})
    assert {run.network for run in ALL} == effort_time.NETWORKS.keys()
    assert sum(run.profile == "graffitist-int4" for run in ALL) == 2 + len(FAMILIES)
