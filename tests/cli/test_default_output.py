"""Default output of `qgraph quantize`: beside the model, and nowhere else."""

from pathlib import Path

import numpy as np
import pytest

from qgraph.cli.quantize import beside
from tests.helpers.cli import left_in, run, small_network, typical_images


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.pb").write_bytes(small_network().SerializeToString())
    np.savez(tmp_path / "calib.npz", image=typical_images())
    return tmp_path


def quantize(folder, *more: object):
    return run("quantize", folder / "net.pb", "-c", folder / "calib.npz", *more)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ((), "net_int8"),
        (("--profile", "graffitist-int4"), "net_int4"),
        (("--mean-bits", 6), "net_mixed"),
    ],
)
def test_the_name_describes_the_profile(folder, options, name):
    done = quantize(folder, "--effort", "plain", *options)
    assert done.code == 0
    assert left_in(folder) == {"net.pb", "calib.npz", name}
    out = folder / name
    written = f"written to {out}\nnext: qgraph verify {out}\n      qgraph report {out}\n"
    results, warnings = done.out.split(written)
    assert results and all(line.startswith("warning: ") for line in warnings.splitlines() if line)


def test_existing_files_are_not_replaced_without_force(folder):
    (folder / "net_int8").mkdir()
    (folder / "net_int8" / "notes.txt").write_text("mine")
    for more in ((), ("--force",)):
        done = quantize(folder, "--effort", "plain", *more)
        assert done.code != 0
        assert "net_int8" in done.err
        assert left_in(folder) == {"net.pb", "calib.npz", "net_int8"}
        assert (folder / "net_int8" / "notes.txt").read_text() == "mine"


def test_commands_to_type_next_are_quoted(folder):
    out = folder / "my networks" / "net"
    done = quantize(folder, "--effort", "plain", "-o", out)
    assert done.out.splitlines()[-1] == f"      qgraph report '{out}'"


def test_names_of_directories_and_checkpoints_are_whole(tmp_path, monkeypatch):
    (tmp_path / "saved.v2").mkdir()
    (tmp_path / "net.ckpt-10.meta").touch()
    monkeypatch.chdir(tmp_path / "saved.v2")
    for model, wanted in (
        (tmp_path / "saved.v2", "saved.v2_int8"),
        (tmp_path / "net.ckpt-10.meta", "net.ckpt-10_int8"),
        (tmp_path / "net.ckpt-10", "net.ckpt-10_int8"),
    ):
        assert beside(model, "int8") == tmp_path / wanted
    assert beside(Path("."), "int8") == tmp_path / "saved.v2_int8"
