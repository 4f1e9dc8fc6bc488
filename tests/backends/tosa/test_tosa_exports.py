"""Files and messages of `qgraph export --format tosa`, without the tools of TOSA."""

import json
from pathlib import Path

import pytest

from qgraph.backends.tosa.tosa_form import FILE, PORTS, TosaForm
from qgraph.backends.tosa.tosa_tools import FOLDER_VARIABLE
from qgraph.errors import UnsupportedError
from qgraph.exports import export
from qgraph.stored import load_network

FORM = TosaForm()


def test_float_ops_are_left_to_the_host(digits_tosa: Path, tmp_path: Path) -> None:
    sizes = export(digits_tosa, "tosa", tmp_path / "made")
    assert {FILE, PORTS} <= {*sizes}
    (warning,) = json.loads((tmp_path / "made" / "export.json").read_text())["warnings"]
    ports = json.loads((tmp_path / "made" / PORTS).read_text())
    (output,) = (port["name"] for port in ports["outputs"])
    assert warning.startswith("the file contains only the integer part of the network. ")
    assert f"`{output}`" in warning


def test_a_missing_tool_is_named(digits_tosa: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    network = load_network(digits_tosa)
    with pytest.raises(UnsupportedError, match="tosa-tools was not found") as raised:
        FORM.runner(network, tmp_path)
    assert "pipx install tosa-tools" in str(raised.value.hint)
