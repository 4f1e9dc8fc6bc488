"""A real network for the forms."""

from pathlib import Path

import pytest

from tests.helpers.digits_directory import digits_directory


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Path:
    """The output directory of the digits network, calibrated on noise."""
    return digits_directory(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def digits_tosa(tmp_path_factory) -> Path:
    """The output directory of the digits network for profile `tosa`."""
    return digits_directory(tmp_path_factory.mktemp("digits"), "tosa")
