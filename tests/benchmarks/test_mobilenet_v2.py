"""MobileNetV2 of the paper's depth: its layers, and the whole benchmark on a few images."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.families.data import Part, Split
from benchmarks.families.train import freeze
from benchmarks.mobilenet_v2 import network
from benchmarks.mobilenet_v2 import peers as other_tools
from benchmarks.mobilenet_v2.clock import Clock, OutOfTime
from benchmarks.mobilenet_v2.float_training import FloatRun, moved, trained
from benchmarks.mobilenet_v2.network import channels_of, mobilenet_v2
from benchmarks.mobilenet_v2.peers import FloatNetwork, peers, right_by_peers
from benchmarks.mobilenet_v2.table import Ways, accuracies, right_answers
from qgraph.choices import Effort
from qgraph.frontends.tf.importing import import_graph_def

SMALL = FloatRun(width=0.1, epochs=2, batch_size=16)
FEW_STAGES = network.STAGES[:3]


@pytest.fixture(scope="module")
def data() -> Split:
    rng = np.random.default_rng(0)
    part = Part(rng.random((48, 32, 32, 3), np.float32), rng.integers(0, 10, 48))
    return Split(part, part.first(16), part.first(20))


def test_it_has_the_layers_of_the_paper():
    ops = Counter(node.op for node in import_graph_def(freeze(mobilenet_v2(0.5))).topological())
    wanted = {"conv2d": 35, "depthwise_conv2d": 17, "relu6": 35, "add": 10, "matmul": 1}
    assert {op: ops[op] for op in wanted} == wanted
    full = mobilenet_v2()
    assert full.count_params() - full.layers[-1].count_params() == 2_257_984  # of ImageNet's
    assert [channels_of(c, 0.35) for c in (16, 24, 32, 1280)] == [8, 8, 16, 448]


def test_moved_images_stay_within_the_shift():
    rng = np.random.default_rng(0)
    image = np.zeros((50, 32, 32, 1), np.float32)
    image[:, 16, 16] = 1
    _, ys, xs, _ = np.nonzero(moved(image, rng))
    assert {*ys} == {*xs} == {*range(12, 21)}


@pytest.fixture
def shallow(monkeypatch):
    """A network of the first six blocks, which compiles quickly."""
    monkeypatch.setattr(network, "STAGES", FEW_STAGES)


@pytest.mark.usefixtures("shallow")
def test_float_training_that_ran_out_of_time_continues_to_the_same_network(data, tmp_path):
    whole = trained(SMALL, data, tmp_path / "whole", Clock(60))
    with pytest.raises(OutOfTime, match="epoch 1 of 2"):
        trained(SMALL, data, tmp_path / "parts", Clock(0))
    assert not (tmp_path / "parts" / "float.pb").exists()
    parts = trained(SMALL, data, tmp_path / "parts", Clock(60))
    assert parts.read_bytes() == whole.read_bytes()
    before = parts.stat().st_mtime_ns
    assert trained(SMALL, data, tmp_path / "parts", Clock(0)).stat().st_mtime_ns == before


@pytest.mark.usefixtures("shallow")
def test_all_rows_of_the_table(data, tmp_path):
    path = trained(SMALL, data, tmp_path, Clock(60))
    ways = Ways(Effort.FAST, epochs=1, batch_size=16)
    found = {}
    with pytest.raises(OutOfTime, match="INT8, plain"):
        found.update(right_answers(path, data, ways, tmp_path, Clock(0)))
    found = dict(right_answers(path, data, ways, tmp_path, Clock(60)))
    assert list(found) == [
        "float", "INT8, plain", "INT8, static", "INT8, trained", "INT4, plain", "INT4, static",
        "INT4, trained", "INT4, trained from plain",
    ]  # fmt: skip
    again = dict(right_answers(path, data, ways, tmp_path, Clock(0)))  # all of it is done
    for name, right in found.items():
        np.testing.assert_array_equal(again[name], right)
    record = json.loads((tmp_path / "INT8.json").read_text())
    assert record["effort"] == "fast" and record["weight_rate"] == ways.weight_rate


def test_differences_from_float_are_over_the_same_images():
    answers = {"float": np.array([1, 1, 0, 0], bool), "INT8": np.array([1, 0, 0, 0], bool)}
    first, second = accuracies(answers, []).rows
    assert first["test accuracy"] == 0.5 and first["over float"] is None
    assert second["over float"] == -25
    assert second["standard error"] == pytest.approx(100 * np.sqrt(3 / 16 / 4))


@pytest.mark.usefixtures("shallow")
def test_other_tools_run_once(data, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    float_network = FloatNetwork(trained(SMALL, data, tmp_path, Clock(60)), SMALL.width)
    stub = tmp_path / "stub.py"
    stub.write_text(
        "import os, sys; import numpy as np; _, network, samples, images, scores, *how = sys.argv\n"
        "assert np.load(samples).shape == (48, 32, 32, 3) and open(network, 'rb').read()\n"
        "assert 'TF_USE_LEGACY_KERAS' not in os.environ\n"
        "answer = ['8 0', '4 0', '4 20'].index(' '.join(how))\n"
        "np.save(scores, np.eye(10)[np.full(len(np.load(images)), answer)])\n"
    )
    monkeypatch.setattr(other_tools, "BY_MCT", stub)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")  # as TFMOT does
    tools = peers(Ways().options(48), Path(sys.executable), tfmot=False, rounding=20)
    asked = float_network, data
    with pytest.raises(OutOfTime, match="before INT8, static, LiteRT"):
        dict(right_by_peers(*asked, tools, tmp_path / "peers", Clock(0)))
    found = dict(right_by_peers(*asked, tools, tmp_path / "peers", Clock(60)))
    by_mct = ["INT8, static, MCT", "INT4, static, MCT", "INT4, static, MCT, 20 epochs of rounding"]
    assert {*found} == {
        "INT8, static, LiteRT", "INT8, static, ONNX Runtime", "INT4, static, ONNX Runtime", *by_mct,
    }  # fmt: skip
    for answer, name in enumerate(by_mct):
        np.testing.assert_array_equal(found[name], data.test.labels == answer)
    again = dict(right_by_peers(*asked, tools, tmp_path / "peers", Clock(0)))
    for name, right in found.items():
        np.testing.assert_array_equal(again[name], right)
