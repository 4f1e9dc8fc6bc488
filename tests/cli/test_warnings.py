"""Warnings of `qgraph quantize`: last and bold in the terminal, in the manifest, in the report."""

import json
import re

import numpy as np
import pytest

from qgraph.backends.tf.emit import emit_graph_def
from qgraph.ir.graph import Graph
from tests.helpers.cli import run, small_network, typical_images

RNG = np.random.default_rng(0)
IMAGES = typical_images(64)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.pb"
    path.write_bytes(small_network().SerializeToString())
    return path


@pytest.fixture(scope="module")
def hopeless(tmp_path_factory):
    """One channel of weights is a million times larger than the others, which lose all their
    bits.
    """
    g = Graph("hopeless")
    w = RNG.normal(size=(3, 3, 3, 8)).astype(np.float32)
    w[..., 0] *= 1e6
    attrs = {"strides": (1, 1), "dilations": (1, 1), "padding": "valid"}
    y = g.add("conv2d", g.input("image", "float32", (None, 8, 8, 3)), g.const(w, "w"), attrs=attrs)
    y = g.add("mean", g.add("relu", y), attrs={"axes": (1, 2), "keepdims": False})
    v = RNG.normal(size=(8, 10)).astype(np.float32)
    v[0] = 0
    g.outputs["logits"] = g.add("matmul", y, g.const(v, "v"))
    path = tmp_path_factory.mktemp("net") / "hopeless.pb"
    path.write_bytes(emit_graph_def(g).SerializeToString())
    return path


def quantized(folder, model, data, *options):
    """Output of the terminal in colour, and the manifest."""
    np.save(folder / "x.npy", data)
    done = run("quantize", model, "-c", folder / "x.npy", "-o", folder / "out", *options)
    assert done.code == 0, done.err
    return done.out, json.loads((folder / "out/manifest.json").read_text())


def page_of(folder) -> str:
    done = run("report", folder)
    assert done.code == 0, done.err
    return (folder / "report.html").read_text()


def warnings_of(out: str) -> list[str]:
    return [line.removeprefix("warning: ") for line in out.splitlines() if "warning: " in line]


def loud(x):
    """Samples kept apart for the report are ten times as large as those before them."""
    return np.concatenate([x[:-16], 10 * x[-16:]])


CASES = {
    "few samples": ("model", IMAGES[:2], (), "only 2 samples given: with fewer than 16"),
    "far": ("hopeless", IMAGES, ("--effort", "plain"), "the result is far from the float network"),
    "clipped": ("model", loud(IMAGES), ("--effort", "fast"),
                "many values are clipped on the samples: `image/q8` clips"),
    "pixels": ("model", IMAGES * 255, ("--effort", "plain"),
               r"input `image` is within .* to 25\d.* and nothing before the first layer"),
    "constant": ("model", np.full_like(IMAGES, 0.5), ("--effort", "plain"),
                 "input `image` is 0.5 everywhere"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_warning_is_last_and_bold_and_in_manifest_and_report(
    case, tmp_path, request, monkeypatch
):
    name, data, options, wanted = CASES[case]
    monkeypatch.setenv("FORCE_COLOR", "1")
    out, manifest = quantized(tmp_path, request.getfixturevalue(name), data, *options)
    assert any(re.search(wanted, warning) for warning in manifest["warnings"])
    lines = [line for line in out.splitlines() if line]
    last = lines[-len(manifest["warnings"]) :]
    assert last == [f"\x1b[1;33mwarning: {w}\x1b[0m" for w in manifest["warnings"]]
    page = page_of(tmp_path / "out")
    assert page.count('<div class="warning">') == len(manifest["warnings"])
    assert re.search(wanted.partition("`")[0], page)


def test_a_network_that_is_well_has_no_warning(model, tmp_path):
    out, manifest = quantized(tmp_path, model, IMAGES, "--effort", "plain")
    assert manifest["warnings"] == [] and not warnings_of(out)


@pytest.mark.parametrize("high", [1, 2, 1000])
def test_the_range_of_inputs_is_always_reported(model, tmp_path, high):
    data = IMAGES * high
    data.flat[:2] = 0, high
    out, manifest = quantized(tmp_path, model, data, "--effort", "plain")
    assert f"Input ranges: image in [0, {high}]." in out
    assert manifest["inputs_seen"] == {"image": [0, high]}
    assert f"<code>image</code> in [0, {high}]" in page_of(tmp_path / "out")


def test_retraining_without_data_is_warned_of(model, tmp_path):
    done = run("quantize", model, "--mode", "retrain", "--input-range", "0,1", "-o", tmp_path / "o")
    assert done.code == 0, done.err
    said = warnings_of(done.out)
    assert said[0].startswith("--mode retrain without calibration data")
    assert done.out.strip().endswith(said[-1])
    done = run("quantize", model, "--mode", "retrain", "--input-range", "0,1", "-o", tmp_path / "p",
               "--json")  # fmt: skip
    assert json.loads(done.out)["warnings"] == said


def test_warnings_of_samples_outlast_training_and_those_of_results_do_not(hopeless, tmp_path):
    """Before training, the result is far from float, which training may improve."""
    np.save(tmp_path / "x.npy", IMAGES[:4])
    done = run("quantize", hopeless, "--mode", "retrain", "-c", tmp_path / "x.npy",
               "-o", tmp_path / "out", "--plan", "plain")  # fmt: skip
    before = warnings_of(done.out)
    assert before[0].startswith("only 4 samples given")
    assert any("far from the float network" in w for w in before)
    kept = json.loads((tmp_path / "out/training.json").read_text())["facts"]["warnings"]
    assert kept == before[:1]


def test_float_ops_between_integer_layers_are_reported(model, samples, tmp_path) -> None:
    out = tmp_path / "out"
    done = run(
        "quantize", model, "-c", samples, "-o", out, "--effort", "fast",
        "--passes", "fold-batch-norm,equalize-channels{biases=true}",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "computed in float between integer layers" in done.out
    manifest = json.loads((out / "manifest.json").read_text())
    assert any(op["between"] for op in manifest["float_ops"])
    checked = run("verify", out, "-f", "engine", "-f", "c")
    assert checked.code == 0 and "integer segments" in checked.out
