"""Mistakes are found, and what needs no TensorFlow is done, before TensorFlow is imported."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest

from tests.cli.test_onnx import quantized
from tests.frontends.onnx.test_loading import f, small_cnn
from tests.helpers import retraining
from tests.helpers.cli import run, run_process, typical_images

# Runs commands one after the other in a separate process, where nothing is imported yet. Then
# imports the modules of its arguments, and prints how long that took.
SCRIPT = """
import contextlib, importlib, io, json, sys, time
from qgraph.cli.main import main

modules, found = sys.argv[1:], []
for arguments in json.load(sys.stdin):
    sys.argv, text = ["qgraph", *arguments], io.StringIO()
    code, begin = 0, time.process_time()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    seconds = time.process_time() - begin
    slow = [module for module in ("networkx", "tensorflow") if module in sys.modules]
    found.append([code, text.getvalue(), slow, seconds])
begin = time.process_time()
for module in modules:
    importlib.import_module(module)
json.dump([found, time.process_time() - begin], sys.stdout)
"""
SOON = 0.5  # of the processor time that TensorFlow's import takes in the same process


def run_apart(*commands, then=()):
    """Run commands, then import modules; return facts of each command, and the import's seconds.

    Of each command: exit code, text, slow modules that were imported, seconds of the processor.
    """
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *then],
        input=json.dumps([[str(word) for word in command] for command in commands]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trained_in(tmp_path_factory):
    """A directory to train in."""
    folder = tmp_path_factory.mktemp("trained")
    retraining.quantized(folder)
    np.savez(folder / "calib.npz", image=retraining.images())
    made = run(
        "quantize", folder / "net.h5", "-c", folder / "calib.npz", "--mode", "retrain",
        "--plan", retraining.PLAN, "-o", folder / "out",
    )  # fmt: skip
    assert made.code == 0, made.err
    return folder / "out"


def test_mistakes_are_found_before_tensorflow_is_imported(
    model, samples, written, trained_in, tmp_path
) -> None:
    np.savez(tmp_path / "narrow.npz", image=typical_images()[:, :4])
    np.savez(tmp_path / "unlabelled.npz", image=typical_images())
    nowhere, narrow = tmp_path / "nowhere", tmp_path / "narrow.npz"
    mistakes = [
        (("quantize", nowhere, "-c", samples), 3, "no such file"),
        (("quantize", model, "-c", nowhere), 6, "no such file"),
        (("quantize", model, "-c", samples, "-o", written), 8, "exists and is not empty"),
        (("quantize", model, "-c", samples, "--plan", "x"), 2, "unknown step `x`"),
        (("quantize", model, "-c", samples, "--profile", "x"), 7, "x"),
        (("quantize", model, "-c", samples, "--passes", "x"), 2, "x"),
        (("analyze", nowhere, "-c", samples), 3, "no such file"),
        (("analyze", model, "-c", nowhere), 6, "no such file"),
        (("optimize", model, "-o", nowhere), 2, "neither in .pb nor in .onnx"),
        (("optimize", nowhere, "-o", tmp_path / "x.pb"), 3, "no such file"),
        (("train", nowhere, "--data", samples), 3, "no such directory"),
        (("train", trained_in, "--data", nowhere), 6, "no such file"),
        (("train", trained_in, "--data", narrow), 6, "training data has shape (16, 4, 8, 3)"),
        (("finalize", nowhere), 3, "no such directory"),
        (("finalize", trained_in, "--last"), 3, "no checkpoint was written yet"),
        (("verify", nowhere), 3, "no such directory"),
        (("verify", trained_in), 3, "without an inference graph"),
        (("verify", written, "--format", "x"), 2, "format `x`"),
        (("verify", written, "--input", narrow), 6, "the input data has shape (16, 4, 8, 3)"),
        (("run", written, "--input", narrow), 6, "the input data has shape (16, 4, 8, 3)"),
        (("run", nowhere, "--input", narrow), 3, "no such directory"),
        (("report", nowhere), 3, "no such directory"),
        (("export", nowhere, "-f", "c", "-o", tmp_path / "c"), 3, "no such directory"),
        (("export", written, "-f", "tensorflow", "-o", written), 8, "exists and is not empty"),
        (("evaluate", written, "--data", tmp_path / "unlabelled.npz"), 6, "has no labels"),
        (("evaluate", nowhere, "--data", samples), 3, "no such directory"),
    ]
    commands = (arguments for arguments, _, _ in mistakes)
    found, importing = run_apart(*commands, then=["tensorflow"])
    assert not nowhere.exists()
    for (arguments, code, words), (left, text, imported, seconds) in zip(
        mistakes, found, strict=True
    ):
        assert (left, imported) == (code, []), (arguments, text)
        assert words in text, (arguments, text)
        assert seconds < SOON * importing, (arguments, seconds, importing)


def test_what_was_written_is_used_without_tensorflow(written, samples, tmp_path) -> None:
    np.savez(tmp_path / "test.npz", image=typical_images(), labels=np.zeros(16, int))
    forms = ("c", "engine", "onnx-integer", "onnx-qdq", "onnx-qoperator", "qonnx", "vectors")
    found, _ = run_apart(
        *(("export", written, "-f", form, "-o", tmp_path / form) for form in forms),
        ("verify", written, "-f", "c", "-f", "engine", "-f", "onnx-integer", "-f", "onnx-qdq"),
        ("run", written, "--input", samples),
        ("evaluate", written, "--data", tmp_path / "test.npz"),
        ("report", written),
        ("inspect", written),
    )
    for code, text, imported, _ in found:
        assert code == 0 and "tensorflow" not in imported, text


def test_onnx_is_read_and_written_without_tensorflow(tmp_path) -> None:
    network, samples = tmp_path / "net.onnx", tmp_path / "samples.npy"
    onnx.save(small_cnn(None), network)
    np.save(samples, f(8, 3, 6, 6))
    assert quantized(network).code == 0
    np.save(tmp_path / "narrow.npy", f(8, 3, 6, 5))
    found, _ = run_apart(
        ("inspect", network),
        ("optimize", network, "-o", tmp_path / "float.onnx"),
        ("analyze", network, "-c", samples),
        ("export", tmp_path / "out", "-f", "onnx-integer", "-o", tmp_path / "integer"),
        ("quantize", network, "-c", samples, "-o", tmp_path / "again"),
        ("export", tmp_path / "again", "-f", "tensorflow", "-o", tmp_path / "pb"),
        ("optimize", network, "-o", tmp_path / "float.pb"),
        ("quantize", network, "-c", tmp_path / "narrow.npy", "-o", tmp_path / "wrong"),
    )
    assert [code for code, *_ in found] == [0] * 7 + [6]
    assert "tensorflow" not in found[-1][2]


def test_tensorflow_is_imported_in_silence(model) -> None:
    """In Python as on the command line; the module is the one that a plain import gives."""
    code = (
        "import sys, qgraph\n"
        f"qgraph.load({str(model)!r})\n"
        "import tensorflow\n"
        "print(type(tensorflow.__loader__).__name__, tensorflow.__spec__.loader is "
        "tensorflow.__loader__, [type(f).__name__ for f in sys.meta_path].count('_Finder'))\n"
    )
    done = run_process("-c", code)
    assert done.stdout == "SourceFileLoader True 0\n"
    assert "oneDNN" not in done.stderr and "cuInit" not in done.stderr


@pytest.mark.parametrize(
    "call", ["train({folder!r}, {data!r}, options=Options(epochs=1))", "keras_model({folder!r})"]
)
def test_training_in_python_is_silent_too(trained_in, call) -> None:
    data = trained_in.parent / "calib.npz"
    code = (
        "from qgraph import retrain\nfrom qgraph.train.options import Options\n"
        f"retrain.{call.format(folder=str(trained_in), data=str(data))}\n"
    )
    done = run_process("-c", code)
    assert done.returncode == 0, done.stderr
    assert "oneDNN" not in done.stderr and "cuInit" not in done.stderr
    assert "cuda" not in done.stderr.lower()
