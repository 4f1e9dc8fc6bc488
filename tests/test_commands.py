"""The page of all commands runs from top to bottom on the digits network."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.cli import run

ROOT = Path(__file__).parents[1]


def commands() -> list[list[str]]:
    """The list of commands, without their comments."""
    page = (ROOT / "docs/guides/commands.md").read_text("utf-8")
    block = re.search(r"(?:^    qgraph .*\n)+", page, re.MULTILINE)
    assert block is not None
    return [shlex.split(line, comments=True)[1:] for line in block[0].splitlines()]


def test_each_verb_is_in_the_list_or_named_below_it() -> None:
    verbs = {words[0] for words in commands()}
    listed = set(re.findall(r"^│ ([a-z]+) ", run("--help").out, re.MULTILINE))
    assert listed - verbs == {"rl"}


@pytest.mark.slow
def test_the_commands_run_from_top_to_bottom(tmp_path, monkeypatch) -> None:
    pytest.importorskip("sklearn")
    subprocess.run([sys.executable, ROOT / "examples/digits/files.py", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    shown = {}
    for words in commands():
        done = run(*words)
        assert done.code == 0, (words, done.err)
        shown[" ".join(words)] = done.out
    (beside,) = (text for line, text in shown.items() if line.endswith("-c calib.npz"))
    assert "64 samples of calib.npz, which calibration did not see" in beside  # they have labels
    for folder in ("out/", "tuned/"):
        (accuracy,) = re.findall(
            r"^quantized +([\d.]+)%", shown[f"evaluate {folder} --data test.npz"], re.MULTILINE
        )
        assert float(accuracy) > 97
    assert "tuned/inference/report.html" in shown["report tuned/"]
    assert (tmp_path / "tuned/inference/report.html").exists()
    assert (tmp_path / "firmware").is_dir() and (tmp_path / "float.onnx").exists()
