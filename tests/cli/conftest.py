"""A small network and its calibration data as files, and what `quantize` makes of them."""

import numpy as np
import pytest

from tests.helpers.cli import run, small_network, typical_images


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder with `net.pb` and `samples.npz`; tests only read it."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "net.pb").write_bytes(small_network().SerializeToString())
    np.savez(folder / "samples.npz", image=typical_images())
    return folder


@pytest.fixture(scope="session")
def model(files):
    return files / "net.pb"


@pytest.fixture(scope="session")
def samples(files):
    return files / "samples.npz"


@pytest.fixture(scope="session")
def written(model, samples, tmp_path_factory):
    """The output directory of a successful run; tests only read it."""
    out = tmp_path_factory.mktemp("written") / "out"
    assert run("quantize", model, "-c", samples, "-o", out).code == 0
    return out
