"""HDF5 files are looked through by a process with limits before Keras reads them."""

import subprocess
import sys

import h5py
import pytest
import tf_keras

from qgraph.frontends.keras import hdf5
from tests.helpers.keras_files import refused, small


def test_arrays_in_other_files(tmp_path):
    path = tmp_path / "m.h5"
    small(tf_keras).save(path)
    with h5py.File(path, "a") as file:
        file["model_weights/secret"] = h5py.ExternalLink("/etc/hostname", "/x")
    refused(path, "link to another place")


def test_arrays_without_bytes_in_the_file(tmp_path):
    path = tmp_path / "m.h5"
    small(tf_keras).save(path)
    with h5py.File(path, "a") as file:
        file.create_dataset("model_weights/giant", (2**40,), "float32", chunks=(2**20,))
    refused(path, "arrays of more than")


WALK = """
import runpy
import time
names = runpy.run_path({script!r})
names["Walk"].group = lambda self, group: {body}
names["main"]()
"""


@pytest.mark.parametrize(
    ("body", "loops"), [("[0 for _ in iter(int, 1)]", True), ("time.sleep(2)", False)]
)
def test_library_that_loops_or_waits(tmp_path, monkeypatch, body, loops):
    """libhdf5 may loop on damaged files; such a process is ended. A process may also wait."""
    script = tmp_path / "walk.py"
    script.write_text(WALK.format(script=str(hdf5.SCRIPT), body=body))
    monkeypatch.setattr(hdf5, "SCRIPT", script)
    monkeypatch.setattr(hdf5, "SECONDS", 1)
    small(tf_keras).save(tmp_path / "m.h5")
    if loops:
        refused(tmp_path / "m.h5", "within 1 s of processor time")
    else:
        assert hdf5.read_contents(tmp_path / "m.h5", "m.h5").members


def test_library_that_waits_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "SECONDS", 0.01)
    monkeypatch.setattr(hdf5, "PATIENCE", 1)
    small(tf_keras).save(tmp_path / "m.h5")
    refused(tmp_path / "m.h5", "did not read it within 0 s")


UNDER_A_LIMIT = """
import resource, sys
from pathlib import Path
from qgraph.frontends.keras.hdf5 import SPACE, read_contents
resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
print(read_contents(Path(sys.argv[1]), "m.h5").members)
"""


def test_a_limit_of_memory_that_the_user_set_is_kept(tmp_path):
    """The process may not ask for more than `ulimit -v` allows, and a file is not called damaged
    for it.
    """
    small(tf_keras).save(tmp_path / "m.h5")
    command = [sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path / "m.h5")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert "model_weights" in done.stdout, done.stderr
