"""The tools of TOSA are found by a variable that they do not see themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from qgraph.backends.tosa.tosa_tools import (
    FOLDER_VARIABLE,
    REFERENCE_MODEL,
    VALIDATOR,
    reference_model,
    reference_model_title,
    validate,
)
from qgraph.errors import ExactnessError


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Tools that fail where they see the variable, as a script that starts itself again would."""
    text = f"""#!{sys.executable}
import json, os, shutil, sys
if {FOLDER_VARIABLE!r} in os.environ:
    sys.exit("started again and again")
if "--version" in sys.argv:
    print("Model version 1.2.3d")
elif "--test_desc" in sys.argv:
    asked = json.load(open("test.json"))
    for before, after in zip(asked["ifm_file"], asked["ofm_file"]):
        shutil.copy(before, after)
"""
    for name in (REFERENCE_MODEL, VALIDATOR):
        (tmp_path / name).write_text(text, "utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def test_scripts_of_the_folder_are_not_started_again(folder) -> None:
    file = folder / "network.tosa"
    file.write_bytes(b"")
    validate(file)
    assert reference_model_title() == "TOSA reference model 1.2.3d"
    codes = np.arange(6, dtype=np.int8).reshape(2, 3)
    np.testing.assert_array_equal(reference_model(file, {"x": codes}, ["y"])["y"], codes)


def test_a_tool_that_fails_is_an_error_with_its_words(folder) -> None:
    (folder / VALIDATOR).write_text(f"#!{sys.executable}\nimport sys; sys.exit('no such op')\n")
    with pytest.raises(ExactnessError, match="tosa-opt refuses the file") as error:
        validate(folder / "network.tosa")
    assert error.value.hint == "no such op"
