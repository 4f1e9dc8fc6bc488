"""The public names of training: documented, on the site's reference, with examples that run."""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path

import pytest

import qgraph
from qgraph import retrain
from qgraph.train import callbacks, options
from tests.helpers.cli import run_process
from tests.helpers.docstrings import (
    class_faults,
    digits_files,
    failed_examples,
    function_faults,
    public_names,
    value_of,
)

ROOT = Path(__file__).parents[1]
NAMES = [
    (module, name)
    for module in (retrain, callbacks, options)
    for name in public_names(module)
    if not name.rpartition(".")[2].startswith("on_")  # what Keras calls
]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A directory with the files of the digits network and `tuned`, a training directory."""
    folder = digits_files(tmp_path_factory)
    plain = qgraph.quantize(
        folder / "model.pb", folder / "calib.npz", mode="retrain", effort="plain"
    )
    retrain.save(plain, folder / "tuned")
    return folder


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_is_documented(module, name) -> None:
    value = value_of(module, name)
    assert not (class_faults(value) if inspect.isclass(value) else function_faults(value))


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), [*NAMES, (retrain, "")])
def test_an_example_prints_what_it_shows(module, name, digits, tmp_path, monkeypatch) -> None:
    shutil.copytree(digits, tmp_path, dirs_exist_ok=True)
    if not name:
        shutil.rmtree(tmp_path / "tuned")
    monkeypatch.chdir(tmp_path)
    assert not failed_examples(value_of(module, name), {"qgraph": qgraph})


@pytest.mark.parametrize("module", [retrain, callbacks, options])
def test_importing_a_module_prints_nothing(module) -> None:
    done = run_process("-c", f"import {module.__name__}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_name_is_on_the_site() -> None:
    page = (ROOT / "docs/reference/python_training.md").read_text("utf-8")
    members = re.search(r"members: \[(.*)\]", page)
    assert members is not None
    assert sorted(members[1].split(", ")) == sorted(retrain.__all__)
