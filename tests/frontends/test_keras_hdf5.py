"""HDF5 files are looked through by a process with limits before Keras reads them."""

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
