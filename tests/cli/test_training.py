"""`quantize --mode retrain`, `train`, `finalize`: from a trained network to a retrained one."""

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from qgraph import retrain
from qgraph.backends.tf.program import TFProgram
from qgraph.cli.training import VALIDATIONS_SHOWN, shown_scores
from qgraph.errors import LoadError
from qgraph.exact.reference import Reference
from qgraph.interpret import evaluate
from qgraph.retrain import load
from qgraph.train.checkpoint import read_checkpoint
from qgraph.train.loop import Trainer, network_of
from qgraph.train.score import Score
from tests.helpers import retraining
from tests.helpers.cli import left_in, run

SLOW_RATE = ("--weight-rate", "3e-3", "--batch-size", "16")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """`net.h5`, `calib.npz`, `train.npz` and `val.npz`; tests only read them."""
    folder = tmp_path_factory.mktemp("files")
    made = retraining.quantized(folder)
    for name, seed in (("train", 2), ("val", 3)):
        x, labels = retraining.task(made.floating, seed=seed)
        np.savez(folder / f"{name}.npz", image=x, labels=labels)
    np.savez(folder / "calib.npz", image=retraining.images())
    return folder


def quantize(files: Path, out: Path, *more: object):
    return run(
        "quantize", files / "net.h5", "-c", files / "calib.npz", "--mode", "retrain",
        "--profile", "graffitist-int4", "--plan", retraining.PLAN, "-o", out, *more,
    )  # fmt: skip


def train(files: Path, out: Path, *more: object):
    data = ("--data", files / "train.npz", "--validation", files / "val.npz")
    return run("train", out, *data, "--fast", *SLOW_RATE, *more)


@pytest.fixture
def out(files, tmp_path):
    assert quantize(files, tmp_path / "out").code == 0
    return tmp_path / "out"


def accuracy(folder: Path, files: Path) -> float:
    data = np.load(files / "val.npz")
    manifest = json.loads((folder / "manifest.json").read_text())
    program = TFProgram(folder / "inference.pb")
    (scores,) = program.run({"image": data["image"]}, list(manifest["outputs"]))
    return float((scores.argmax(-1) == data["labels"]).mean())


def test_the_three_verbs(files, out, tmp_path):
    assert left_in(out) == {
        "training.json", "graph.txt", "float.txt", "arrays.npz", "profile.yaml", "rewrites.json",
    }  # fmt: skip
    trained = train(files, out, "--epochs", 6)
    assert trained.code == 0
    assert "36 steps, 6 epochs" in trained.out
    assert f"next: qgraph finalize {out}" in trained.out
    assert "epoch 6/6, loss " in trained.err
    done = run("finalize", out)
    assert done.code == 0
    assert "Trained: " in done.out
    assert "qgraph report" in done.out
    manifest = json.loads((out / "inference" / "manifest.json").read_text())
    training = manifest["training"]
    assert training["history"][0]["accuracy"] < training["best"]["accuracy"]
    assert accuracy(out / "inference", files) == training["best"]["accuracy"]
    report = run("report", out / "inference")
    assert "of the answers on validation samples are right" in report.out
    assert "--effort" not in (out / "inference" / "report.html").read_text()


def test_what_is_finalized_is_the_integer_reference(files, out):
    assert train(files, out, "--epochs", 2).code == 0
    assert run("finalize", out, "--last", "-o", out / "last").code == 0
    made = retrain.finalize(out, last=True)
    x = {"image": np.load(files / "val.npz")["image"]}
    wanted = Reference(made.graph).outputs(x)
    names = list(made.graph.outputs)
    for value, name in zip(
        TFProgram(out / "last" / "inference.pb").run(x, names), names, strict=True
    ):
        np.testing.assert_array_equal(value, wanted[name])


def last_lines(text: str) -> list[str]:
    """The last two lines before the warnings, which end every run that has some."""
    lines = text.splitlines()
    while lines[-1].startswith("warning: "):
        lines.pop()
    return lines[-2:]


def test_output_and_data_may_be_left_out(files, tmp_path):
    """The network has batch norms: what they know of its values is where thresholds begin."""
    shutil.copy(files / "net.h5", tmp_path)
    found = run("quantize", tmp_path / "net.h5", "--mode", "retrain")
    assert found.code == 0
    assert left_in(tmp_path) == {"net.h5", "net_retrain"}
    out = tmp_path / "net_retrain"
    assert last_lines(found.out) == [
        f"written to {out}",
        f"next: qgraph train {out} --data TRAIN.npz --validation VALIDATION.npz",
    ]
    assert train(files, out, "--epochs", 1).code == 0
    assert run("finalize", out).code == 0


@pytest.mark.parametrize(("learn", "clips"), [("all", True), ("weights", False)])
def test_training_of_weights_alone_begins_from_their_largest_magnitude(
    files, tmp_path, learn, clips
):
    """Three deviations, where thresholds that learn begin, would clip the one large weight."""
    model = retraining.keras_network()
    (dense,) = (layer for layer in model.layers if layer.name.startswith("dense"))
    dense.kernel[0, 0].assign(12 * np.abs(dense.kernel.numpy()).max())
    model.save(tmp_path / "net.h5")
    made = run("quantize", tmp_path / "net.h5", "--mode", "retrain", "--plan", "weights=3sd")
    assert made.code == 0
    out = tmp_path / "net_retrain"
    assert train(files, out, "--epochs", 1, "--weight-rate", 0, "--learn", learn).code == 0
    graph = retrain.finalize(out, last=True).graph
    (layer,) = (node for node in graph.topological() if node.op == "matmul")
    quantizer = graph.nodes[layer.inputs[1]]
    spec, weights = quantizer.attrs["spec"], graph.constant(quantizer.inputs[0])
    assert (np.abs(weights).max() * 2.0**spec.exponent > 2 ** (spec.bits - 1)) == clips


def test_in_one_go(files, tmp_path):
    found = quantize(
        files, tmp_path / "out", "--train-data", files / "train.npz",
        "--validation", files / "val.npz", "--epochs", 1, "--fast",
    )  # fmt: skip
    assert found.code == 0
    assert {"checkpoints", "inference"} < left_in(tmp_path / "out")
    assert (tmp_path / "out" / "inference" / "inference.pb").exists()


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_training_begins_from_the_best_static_network_and_never_ends_below(files, tmp_path, effort):
    """After training with a rate that ruins the network, the result is that of static mode."""
    start = (files / "net.h5", "-c", files / "calib.npz", "--effort", effort)
    profile = ("--profile", "graffitist-int4")
    static, out = tmp_path / "static", tmp_path / "out"
    assert run("quantize", *start, *profile, "-o", static).code == 0
    assert run("quantize", *start, *profile, "--mode", "retrain", "-o", out).code == 0

    def assert_static(folder: Path) -> None:
        found, wanted = np.load(folder / "tensors.npz"), np.load(static / "tensors.npz")
        assert found.files == wanted.files
        for name in wanted.files:
            np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
        programs = (TFProgram(place / "inference.pb") for place in (folder, static))
        scores = [program.run(data, outputs)[0] for program in programs]
        np.testing.assert_array_equal(*scores)

    data = {"image": np.load(files / "val.npz")["image"]}
    outputs = list(json.loads((static / "manifest.json").read_text())["outputs"])
    done = run("finalize", out, "-o", tmp_path / "untrained")
    assert "Not trained yet: this is the network that training starts from." in done.out
    assert_static(tmp_path / "untrained")
    trained = train(files, out, "--epochs", 1, "--weight-rate", "3")
    assert "Training did not improve the network: finalize uses the network before" in trained.out
    done = run("finalize", out)
    assert "Training did not improve the network: this is the network before training." in done.out
    assert_static(out / "inference")


def test_json_is_all_that_is_printed(files, out):
    trained = json.loads(train(files, out, "--epochs", 1, "--json").out)
    assert trained["steps"] == 6
    assert [score["step"] for score in trained["history"]] == [0, 6]
    found = json.loads(run("finalize", out, "--json").out)
    assert found["training"]["best"] == trained["best"]


@pytest.mark.parametrize("more", [(), ("--loss", "blocks", "--step-rate", "0.05")])
def test_unlabelled_images_do(files, out, tmp_path, more):
    """The float network is the teacher."""
    for name in ("train", "val"):
        np.savez(tmp_path / f"{name}.npz", image=np.load(files / f"{name}.npz")["image"])
    shown = train(tmp_path, out, "--epochs", 1, *more).out
    assert "share of samples with the same class as the float network" in shown
    found = train(tmp_path, out, "--epochs", 6, "--json", *more)
    record = json.loads(found.out)
    assert record["best"]["accuracy"] > record["history"][0]["accuracy"]
    assert record["best"]["loss"] < record["history"][0]["loss"]


def test_a_directory_is_read_as_it_was_written(files, out):
    made, found = retraining.quantized(files), load(out)
    x = {"image": retraining.images(8, seed=7)}
    for mine, theirs in ((made.graph, found.graph), (made.floating, found.floating)):
        ends = list(mine.outputs.values())
        wanted, got = evaluate(mine, x, ends), evaluate(theirs, x, ends)
        for value in ends:
            np.testing.assert_array_equal(got[value], wanted[value])
    assert network_of(found.graph) == network_of(made.graph)
    assert found.trace.stored == made.trace.stored


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("layer", "none", "a batch norm is of `none`, which does not exist"),
        ("weights", "none", "a batch norm is of `none`, which does not exist"),
        ("bias", "none", "a batch norm is of `none`, which does not exist"),
        ("side", "left", "a batch norm is at an unknown side of `"),
        ("side", None, "a batch norm is at an unknown side of `"),
        ("side", [], "a batch norm is at an unknown side of `"),
        ("layer", [], "is not what `qgraph quantize --mode retrain` wrote"),
    ],
)
def test_a_damaged_batch_norm_is_refused_when_the_directory_is_read(
    files, out, key, value, message
):
    about = json.loads((out / "training.json").read_text())
    about["norms"][-1][key] = value
    (out / "training.json").write_text(json.dumps(about))
    with pytest.raises(LoadError, match=re.escape(message)):
        load(out)
    found = run("train", out, "--fast", "--data", files / "train.npz")
    assert found.code == 3 and message in found.err.replace("\n", " "), found.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("finalize", "{out}", "--last"), "no checkpoint was written yet"),
        (
            ("train", "{files}", "--fast", "--data", "{files}/train.npz"),
            "is not what `qgraph quantize",
        ),
        (("train", "{out}", "--fast", "--data", "{files}/none.npz"), "no such file"),
        (
            ("train", "{out}", "--fast", "--data", "{files}/train.npz", "--output", "z"),
            "unknown output",
        ),
        (
            ("train", "{out}", "--fast", "--data", "{files}/train.npz", "--threads", "0"),
            "--threads",
        ),
        (("quantize", "{files}/net.h5", "-o", "{out}", "--mode", "retrain"), "is not empty"),
        (("quantize", "{files}/net.h5", "-o", "x", "--train-data", "y"), "--mode retrain"),
        (("quantize", "{files}/net.h5", "-o", "x", "--validation", "y"), "--validation is for"),
        (("quantize", "{files}/net.h5", "-o", "x", "--fast"), "--fast is for --train-data"),
    ],
)
def test_impossible_requests_are_reported(files, out, arguments, message):
    found = run(*(str(a).format(out=out, files=files) for a in arguments))
    assert found.code in (2, 3, 6, 8)
    assert message in found.err
    assert "Traceback" not in found.err


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_bits(files, tmp_path):
    """SIGKILL, repeatedly, at random moments."""
    for name in ("whole", "killed"):
        assert quantize(files, tmp_path / name).code == 0

    def command(name: str) -> list[str]:
        return [
            sys.executable, "-m", "qgraph", "train", str(tmp_path / name), "--epochs", "60",
            "--data", str(files / "train.npz"), "--validation", str(files / "val.npz"),
            "--validate-every", "5", "--freeze-start", "10", "--freeze-every", "5", *SLOW_RATE,
        ]  # fmt: skip

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command("whole"), check=True, **quiet)
    newest, rng = tmp_path / "killed" / "checkpoints" / "last.npz", random.Random(0)
    for _ in range(5):
        before = newest.stat().st_mtime_ns if newest.exists() else 0
        process = subprocess.Popen(command("killed"), **quiet)
        while process.poll() is None and (
            not newest.exists() or newest.stat().st_mtime_ns == before
        ):
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        assert process.poll() is None, "it came to its end before it was killed"
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command("killed"), check=True, **quiet)
    found, wanted = (
        [
            read_checkpoint(tmp_path / name / "checkpoints" / file, network)
            for file in ("last.npz", "best.npz")
        ]
        for name, network in (
            (name, network_of(load(tmp_path / name).graph)) for name in ("killed", "whole")
        )
    )
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.facts == theirs.facts
        for name, value in theirs.variables.items():
            np.testing.assert_array_equal(mine.variables[name], value, err_msg=name)


def interrupted(monkeypatch, step: int):
    """Ctrl-C during a step of training."""
    one_step = Trainer._one_step

    def stopped(self, batch):
        one_step(self, batch)
        if self.at.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "_one_step", stopped)


def test_ctrl_c_keeps_a_checkpoint_and_names_the_command(files, out, monkeypatch):
    with monkeypatch.context() as patched:
        interrupted(patched, 4)
        stopped = train(files, out, "--epochs", 2, "--restart")
    assert stopped.code == 130
    *_, message, hint = stopped.err.splitlines()
    assert message == "error: interrupted; a checkpoint of step 4 is kept"
    words = shlex.split(hint.removeprefix("  to continue: qgraph "))
    assert "--restart" not in words and "--fast" in words and str(out) in words
    found = run(*words, "--json")
    assert found.code == 0 and json.loads(found.out)["steps"] == 12


def test_ctrl_c_in_train_data_of_quantize_names_the_command(files, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        interrupted(patched, 2)
        data = ("--train-data", files / "train.npz", "--validation", files / "val.npz")
        stopped = quantize(files, out, *data, "--epochs", 1, "--fast")
    assert stopped.code == 130
    words = shlex.split(stopped.err.splitlines()[-1].removeprefix("  to continue: qgraph "))
    assert run(*words).code == 0 and run("finalize", out).code == 0


def test_a_long_history_is_shown_in_part():
    scores = [Score(step, step, 1.0, 0.5, 0) for step in range(101)]
    shown = shown_scores(scores, scores[3])
    assert shown[0] == scores[0] and shown[-1] == scores[-1] and scores[3] in shown
    assert len(shown) == VALIDATIONS_SHOWN + 1
    assert shown_scores(scores[:VALIDATIONS_SHOWN], None) == scores[:VALIDATIONS_SHOWN]
