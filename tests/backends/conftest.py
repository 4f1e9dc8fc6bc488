"""A real network for the forms."""

from pathlib import Path

import numpy as np
import pytest

from qgraph.artifacts import save
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.quant.profile import load_profile

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.pb"


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Path:
    """The output directory of the digits network, calibrated on noise."""
    images = np.random.default_rng(0).uniform(0, 16, (4, 8, 8, 1)).astype(np.float32)
    result = quantize(load(DIGITS), images, plan="method=max")
    return save(result, tmp_path_factory.mktemp("digits") / "out")


@pytest.fixture(scope="session")
def digits_tosa(tmp_path_factory) -> Path:
    """The output directory of the digits network for profile `tosa`."""
    images = np.random.default_rng(0).uniform(0, 16, (4, 8, 8, 1)).astype(np.float32)
    made = quantize(load(DIGITS), images, plan="method=max", profile=load_profile("tosa"))
    return save(made, tmp_path_factory.mktemp("digits") / "out")
