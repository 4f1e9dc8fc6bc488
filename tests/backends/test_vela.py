"""Estimates of Vela for exported files."""

import json
import shutil
from pathlib import Path

import pytest

from qgraph.backends import vela
from qgraph.backends.vela import ESTIMATES, VelaEstimate, estimate, read_estimates
from qgraph.choices import Accelerator
from qgraph.errors import UnsupportedError, UsageError
from qgraph.exports import export
from qgraph.stored import load_network
from tests.helpers.cli import run

needs_vela = pytest.mark.skipif(shutil.which(vela.TOOL) is None, reason="vela is not installed")
CORES = ("ethos-u55-256", "ethos-u65-512", "ethos-u85-256")


@needs_vela
def test_estimates_are_written_beside_the_file(digits_tosa: Path, tmp_path: Path) -> None:
    network = load_network(digits_tosa)
    files = export(network, "tosa", tmp_path / "x", options={"accelerators": CORES})
    found = read_estimates(tmp_path / "x")
    assert ESTIMATES in files and tuple(one.accelerator for one in found) == CORES
    assert all(1000 < one.cycles < 10**6 and one.products > 10**5 for one in found)
    assert all(one.milliseconds > 0 and one.sram > 0 for one in found)
    assert not any(one.cpu_operators for one in found)


@needs_vela
def test_a_rounding_that_an_accelerator_lacks_is_refused(digits: Path, tmp_path: Path) -> None:
    """Half to even takes a bitwise op, which the U55 does not have."""
    options = {"accelerators": ("ethos-u55-256",)}
    with pytest.raises(UnsupportedError, match="could not run on NPU") as raised:
        export(load_network(digits), "tosa", tmp_path / "x", options=options)
    assert "profile `tosa`" in str(raised.value.hint)


@needs_vela
def test_a_file_that_vela_does_not_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tosa").write_bytes(b"no flatbuffer")
    with pytest.raises(UnsupportedError, match="does not compile the file for ethos-u85-256"):
        estimate(tmp_path / "x.tosa", "ethos-u85-256")


def test_a_missing_compiler_is_named(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match="vela was not found") as raised:
        estimate(tmp_path / "x.tosa", Accelerator.U85_256)
    assert raised.value.hint == "pipx install ethos-u-vela"


def test_an_unknown_accelerator_is_named(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown accelerator `ethos-u1`"):
        export(
            load_network(digits), "tosa", tmp_path / "x", options={"accelerators": ("ethos-u1",)}
        )


def test_the_command_shows_estimates(digits: Path, tmp_path: Path, monkeypatch) -> None:
    known = VelaEstimate("ethos-u85-256", "system", 12513, 0.0125, 110176, 4608, 11312, 0, 0)
    monkeypatch.setattr(vela, "estimate", lambda file, name: known)
    options = ["--format", "tosa", "--accelerator", "ethos-u85-256", "-o", str(tmp_path / "x")]
    done = run("export", str(digits), *options)
    assert done.code == 0 and "12,513" in done.out and "ethos-u85-256" in done.out
    assert json.loads((tmp_path / "x" / ESTIMATES).read_text())[0]["cycles"] == 12513


def test_other_formats_do_not_take_accelerators(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="format `c` has no option `accelerators`"):
        export(load_network(digits), "c", tmp_path / "x", options={"accelerators": CORES})
