"""The same from Python, in five lines, and an import that costs nothing."""

import os
import subprocess
import sys

import pytest

import qgraph
from tests.helpers.cli import run, typical_images


def test_five_lines(model, samples, written, tmp_path):
    result = qgraph.quantize(str(model), str(samples))
    out = result.save(tmp_path / "out")
    assert out == tmp_path / "out"
    assert (out / "inference.pb").read_bytes() == (written / "inference.pb").read_bytes()


def test_a_graph_and_arrays_do_as_well_as_files(model, tmp_path):
    graph = qgraph.load(model)
    before = len(graph.nodes)
    result = qgraph.quantize(graph, typical_images(), method="max")
    assert len(graph.nodes) == before
    result.save(str(tmp_path / "out"))
    assert (tmp_path / "out/inference.pb").exists()


def test_names():
    assert all(getattr(qgraph, name) for name in qgraph.__all__)
    assert qgraph.__version__ in run("--version").out
    with pytest.raises(AttributeError, match="`qgraph` has no attribute `quantise`"):
        qgraph.quantise  # noqa: B018


def test_import_is_quick_and_has_no_side_effects():
    code = "import sys, qgraph; print([m for m in sys.modules if m[:6] in ('qgraph', 'numpy')])"
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (done.stdout, done.stderr) == ("['qgraph']\n", "")
