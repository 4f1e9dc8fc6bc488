"""A small network, quantized once, and its report."""

import numpy as np
import pytest

from tests.helpers.cli import run, small_network, typical_images


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """An output directory, without a report; tests only read it."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "net.pb").write_bytes(small_network().SerializeToString())
    np.savez(folder / "samples.npz", image=typical_images())
    done = run("quantize", folder / "net.pb", "-c", folder / "samples.npz", "-o", folder / "out")
    assert done.code == 0, done.err
    return folder / "out"
