"""Settings of hypothesis for all tests, and the state of TensorFlow that tests share."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.helpers.extras", "tests.helpers.instruction_sets"]

settings.register_profile(
    "qgraph", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("qgraph")


@pytest.fixture(autouse=True, scope="module")
def op_determinism_ends_with_the_module() -> Iterator[None]:
    """`qgraph train` has TensorFlow be deterministic, where random ops without a seed fail."""
    yield
    config = sys.modules.get("tensorflow.python.framework.config")
    if config is not None and config.is_op_determinism_enabled():
        config.disable_op_determinism()
