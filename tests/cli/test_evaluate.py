"""`qgraph evaluate`, and the end of `quantize` with labels."""

import json
import shutil

import numpy as np
import pytest

from tests.helpers import retraining
from tests.helpers.cli import run, typical_images


@pytest.fixture(scope="module")
def labels(files):
    return np.random.default_rng(4).integers(0, 4, 16)


@pytest.fixture(scope="module")
def labelled(files, labels, tmp_path_factory):
    file = tmp_path_factory.mktemp("labelled") / "test.npz"
    np.savez(file, image=typical_images(), labels=labels)
    return file


@pytest.fixture(scope="module")
def written(written, tmp_path_factory):
    """A copy: `evaluate` writes what it measures into the directory."""
    return shutil.copytree(written, tmp_path_factory.mktemp("evaluated") / "out")


def test_evaluate_prints_both_networks(written, labelled) -> None:
    done = run("evaluate", written, "--data", labelled)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == f"16 samples of {labelled}"
    assert lines[1].split() == ["network", "top-1", "bytes"]
    assert [line.split()[0] for line in lines[2:4]] == ["float", "quantized"]
    assert "ms per sample by the integer engine" in done.out
    assert lines[-1] == f"next: qgraph report {written}"


def test_json(written, labelled, labels) -> None:
    facts = json.loads(run("evaluate", written, "--data", labelled, "--json", "--limit", 8).out)
    assert facts["samples"] == 8 and facts["outputs"][0]["output"] == "classes"
    assert facts["sizes"]["compression"] > 2


@pytest.mark.parametrize("name", ["image", "x"])
def test_quantize_ends_with_accuracy_where_there_are_labels(model, labels, tmp_path, name) -> None:
    """One input may have any name beside the labels."""
    np.savez(tmp_path / "calib.npz", **{name: typical_images()}, labels=labels)
    given = ("quantize", model, "-c", tmp_path / "calib.npz")
    done = run(*given, "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert f"4 samples of {tmp_path / 'calib.npz'}, which calibration did not see" in done.out
    plain = run(*given, "--effort", "plain", "-o", tmp_path / "plain", "--json")
    evaluation = json.loads(plain.out)["evaluation"]
    assert evaluation["samples"] == 16
    wanted = json.loads(
        run("evaluate", tmp_path / "plain", "--data", tmp_path / "calib.npz", "--json").out
    )
    assert evaluation["outputs"] == wanted["outputs"]


def test_labels_do_not_change_what_is_written(model, samples, labels, written, tmp_path) -> None:
    np.savez(tmp_path / "calib.npz", image=np.load(samples)["image"], labels=labels)
    assert run("quantize", model, "-c", tmp_path / "calib.npz", "-o", tmp_path / "out").code == 0
    for file in ("inference.pb", "network.npz", "float.npz"):
        assert (tmp_path / "out" / file).read_bytes() == (written / file).read_bytes(), file


def test_a_training_directory_means_what_was_finalized(tmp_path) -> None:
    made = retraining.quantized(tmp_path)
    x, labels = retraining.task(made.floating, seed=2)
    np.savez(tmp_path / "train.npz", image=x, labels=labels)
    np.savez(tmp_path / "calib.npz", image=retraining.images())
    out, data = tmp_path / "out", tmp_path / "train.npz"
    given = ("--profile", "graffitist-int4", "--plan", retraining.PLAN, "--mode", "retrain")
    made = run("quantize", tmp_path / "net.h5", "-c", tmp_path / "calib.npz", *given, "-o", out)
    assert made.code == 0, made.err
    early = run("evaluate", out, "--data", data)
    assert early.code == 3
    assert "a training directory without an inference graph" in early.err
    assert f"qgraph finalize {out}" in early.err
    assert run("train", out, "--data", data, "--fast", "--epochs", 1).code == 0
    assert run("finalize", out).code == 0
    facts = json.loads(run("evaluate", out, "--data", data, "--json").out)
    assert facts["outputs"][0]["floating"]["top1"] == 1.0  # the labels are its own
    moved = tmp_path / "alone"
    assert run("report", out).out.splitlines()[-2].startswith(f"written to {out / 'inference'}")
    assert run("verify", out, "--format", "engine").code == 0
    assert (out / "inference" / "certificate.json").exists()
    assert run("export", out, "--format", "engine", "-o", tmp_path / "engine").code == 0
    assert run("run", out, "--input", tmp_path / "calib.npz").code == 0
    shutil.copytree(out / "inference", moved)
    alone = json.loads(run("evaluate", moved, "--data", data, "--json").out)
    assert alone["outputs"] == facts["outputs"]


def test_what_calibration_accepts_is_accepted(written, labelled, tmp_path, monkeypatch) -> None:
    """A directory of .npz files, and functions that return arrays or a dataset of pairs."""
    with np.load(labelled) as whole:
        images, labels = whole["image"], whole["labels"]
    several = tmp_path / "several"
    several.mkdir()
    np.savez(several / "b.npz", image=images[10:], labels=labels[10:])
    np.savez_compressed(several / "a.npz", image=images[:10], labels=labels[:10])
    (tmp_path / "labelled_samples.py").write_text(
        "import numpy as np, tensorflow as tf\n"
        f"found = dict(np.load({str(labelled)!r}))\n"
        "def arrays():\n    return found\n"
        "def pairs():\n"
        "    both = found['image'], found['labels']\n"
        "    return tf.data.Dataset.from_tensor_slices(both).batch(5)\n"
        "def unlabelled():\n    return found['image']\n"
    )
    monkeypatch.chdir(tmp_path)

    def outputs(data: object) -> list:
        done = run("evaluate", written, "--data", data, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)["outputs"]

    wanted = outputs(labelled)
    assert (
        outputs(several)
        == outputs("labelled_samples:arrays")
        == outputs("labelled_samples:pairs")
        == wanted
    )
    limited = run("evaluate", written, "--data", several, "--limit", 12, "--json")
    assert json.loads(limited.out)["samples"] == 12
    assert "has no labels" in run("evaluate", written, "--data", "labelled_samples:unlabelled").err


def test_quantize_takes_a_directory_of_files_with_labels(model, labels, tmp_path) -> None:
    folder = tmp_path / "several"
    folder.mkdir()
    for i, part in enumerate(np.split(np.arange(16), 4)):
        np.savez(folder / f"{i}.npz", image=typical_images()[part], labels=labels[part])
    given = ("-c", folder, "--effort", "plain", "-o", tmp_path / "out")
    done = run("quantize", model, *given)
    assert done.code == 0 and f"16 samples of {folder}, which calibration saw too" in done.out
    np.savez(folder / "4.npz", image=typical_images()[:3], labels=labels[:2])
    wrong = run("quantize", model, *given, "--force")
    assert wrong.code == 6 and "arrays have different sample counts" in wrong.err
    np.savez(folder / "4.npz", image=typical_images()[:3])
    wrong = run("quantize", model, *given, "--force")
    assert wrong.code == 6 and "4.npz: arrays ['image'], but `0.npz` has" in wrong.err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "a directory without .npz files" in run("quantize", model, "-c", empty).err


def test_errors_have_no_raw_exceptions(written, model, tmp_path, monkeypatch) -> None:
    (tmp_path / "failing.py").write_text(
        "def missing():\n    open('nowhere.npz')\n"
        "def key():\n    return {}['image']\n"
        "def text():\n    return iter([['a', 'b']])\n"
    )
    monkeypatch.chdir(tmp_path)
    for name, words in {
        "failing:missing": "failed: No such file or directory: nowhere.npz",
        "failing:key": "failed: key 'image' is missing",
        "failing:nothing": "failed: module 'failing' has no attribute 'nothing'",
        "elsewhere:load": "failed: No module named 'elsewhere'",
        "failing:text": "the data has dtype <U1, which is not numeric",
    }.items():
        for verb, *given in (("evaluate", written, "--data"), ("quantize", model, "-c")):
            done = run(verb, *given, name)
            assert done.code == 6 and f"error: {name}: {words}" in done.err, done.err
            assert "Error:" not in done.err.removeprefix("error: ")


def test_inputs_are_not_called_calibration_data(written, tmp_path) -> None:
    np.save(tmp_path / "nan.npy", np.full((2, 8, 8, 3), np.nan, "float32"))
    np.save(tmp_path / "narrow.npy", np.zeros((2, 8, 7, 3), "float32"))
    np.save(tmp_path / "text.npy", np.array(["a"]))
    for file in ("nan.npy", "narrow.npy", "text.npy", "nowhere.npy"):
        for verb in ("run", "verify"):
            done = run(verb, written, "--input", tmp_path / file)
            assert done.code == 6 and "calibration" not in done.err, done.err


@pytest.mark.parametrize("factor", [255, 1 / 255])
def test_inputs_on_another_scale_than_calibration_are_warned_of(
    written, labels, tmp_path, factor
) -> None:
    images = (typical_images() * factor).astype(np.float32)
    np.savez(tmp_path / "far.npz", image=images, labels=labels)
    np.save(tmp_path / "far.npy", images)
    for done in (
        run("evaluate", written, "--data", tmp_path / "far.npz"),
        run("run", written, "--input", tmp_path / "far.npy"),
    ):
        assert done.code == 0, done.err
        assert done.out.splitlines()[-1].startswith("warning: input `image` reaches ")
    facts = json.loads(run("run", written, "--input", tmp_path / "far.npy", "--json").out)
    assert len(facts["warnings"]) == 1


def test_inputs_like_those_of_calibration_are_not(written, labelled) -> None:
    assert "warning" not in run("evaluate", written, "--data", labelled).out
