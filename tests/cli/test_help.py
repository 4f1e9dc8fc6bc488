"""Help: every parameter is described; shells complete names; long commands report their time."""

import os
import subprocess
import sys

import pytest
import typer.main

from qgraph.choices import ExportFormat
from qgraph.cli import completion, main
from qgraph.exports import FORMS
from qgraph.quant.profile import builtin_profiles
from qgraph.rl.environments.names import environment_names
from qgraph.words import alternatives, duration
from tests.helpers.cli import run
from tests.helpers.verbs import commands

VERBS = dict(commands(typer.main.get_command(main.app)))


@pytest.mark.parametrize("verb", VERBS)
def test_every_parameter_is_described(verb) -> None:
    for parameter in VERBS[verb].params:
        if not getattr(parameter, "hidden", False):
            assert parameter.help and parameter.help[-1] in ".)", (verb, parameter.name)
    assert VERBS[verb].help


def test_help_names_onnx_profiles_and_formats(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    quantize = run("quantize", "--help").out
    assert "an ONNX file, a frozen graph (.pb or .pbtxt)" in quantize
    assert ", ".join(builtin_profiles()) in quantize
    export = run("export", "--help").out
    assert alternatives(ExportFormat) in export


def test_names_to_complete_are_those_of_the_library() -> None:
    assert completion.profile_names() == sorted(builtin_profiles())
    assert {*ExportFormat} == {*FORMS}


def completed(*words: str) -> list[str]:
    """The answer of the program to a shell that completes the last word."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "_QGRAPH_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("qgraph", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-m", "qgraph"], env=environment, capture_output=True, text=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("quantize", "--profile", "int32"), ["int32-bias"]),
        (("profiles", "graffitist-int8"), ["graffitist-int8"]),
        (("export", "--format", "onnx-q"), ["onnx-qdq", "onnx-qoperator"]),
        (("export", "--format", "onnx-x"), ["onnx-xint8"]),
        (("verify", "out", "--format", "tens"), ["tensorflow"]),
        (("quantize", "--mode", "re"), ["retrain"]),
        (("rl", "train", "--algo", "d"), ["dqn", "d4pg"]),
        (("optimize", "m", "--passes", "float,fold-b"), ["float,fold-batch-norm"]),
        (("optimize", "m", "--without", "fold-b"), ["fold-batch-norm"]),
        (("quan",), ["quantize"]),
    ],
)
def test_shells_complete_names(words, found) -> None:
    assert completed(*words) == found


def test_environments_are_completed() -> None:
    pytest.importorskip("gymnasium", reason="needs the extra `rl`")
    assert completed("rl", "train", "--env", "CartPole-v") == ["CartPole-v0", "CartPole-v1"]
    pytest.importorskip("dm_control", reason="needs the extra `rl`")
    assert "dm_control:cartpole-balance:pixels" in environment_names("dm_control:")


def test_completion_can_be_installed() -> None:
    text = run("--help").out
    assert "--install-completion" in text and "--show-completion" in text


def test_long_commands_report_their_time(monkeypatch) -> None:
    assert "took" not in run("passes").err
    monkeypatch.setattr("qgraph.cli.main.MIN_SECONDS_SHOWN", 0.0)
    assert run("passes").err.startswith("took 0.")
    assert run("passes", "--json").err == ""
    assert "took" not in run("profiles", "nothing").err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.4, "59.4 s"),
        (59.6, "1 min 0 s"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations(seconds, text) -> None:
    assert duration(seconds) == text
