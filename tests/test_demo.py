"""`make demo`: its commands, and how to use them in a shell."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples/digits"


@pytest.mark.parametrize("installed", [True, False])
def test_the_demo_quantizes_evaluates_and_prints_the_next_step(
    monkeypatch, tmp_path, capsys, installed
) -> None:
    pytest.importorskip("sklearn")
    calls = []
    monkeypatch.setattr(subprocess, "run", lambda words, check: calls.append(words[3]))
    monkeypatch.setattr(shutil, "which", lambda name: name if installed else None)
    monkeypatch.setattr(sys, "argv", ["demo.py", str(tmp_path / "out")])
    monkeypatch.syspath_prepend(FOLDER)
    runpy.run_path(str(FOLDER / "demo.py"), run_name="__main__")
    assert calls == ["quantize", "evaluate"]
    written = {path.name for path in (tmp_path / "out-files").iterdir()}
    assert written >= {"model.pb", "calib.npz", "test.npz"}
    last = capsys.readouterr().out.strip().splitlines()[-1]
    activate = Path(sys.executable).with_name("activate")
    assert (last == f"To use the command qgraph in this shell: . {activate}") != installed
