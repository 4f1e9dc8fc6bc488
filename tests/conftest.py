"""Settings of hypothesis for all tests, and the state that tests share."""

import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.helpers.extras", "tests.helpers.instruction_sets"]

settings.register_profile(
    "qgraph", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("qgraph")


@pytest.fixture(autouse=True, scope="module")
def op_determinism_ends_with_the_module() -> Iterator[None]:
    """`qgraph train` makes TensorFlow deterministic, in which mode random ops without a seed
    fail.
    """
    yield
    config = sys.modules.get("tensorflow.python.framework.config")
    if config is not None and config.is_op_determinism_enabled():
        config.disable_op_determinism()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before fixtures of any scope: what they make does not depend on earlier tests either."""
    reset_random_numbers(getattr(item, "module", None))
    reset_layer_names()


@pytest.fixture(autouse=True)
def nothing_depends_on_earlier_tests(request: pytest.FixtureRequest) -> None:
    """Nor on the fixtures that this test is the first to use."""
    reset_random_numbers(getattr(request, "module", None))
    reset_layer_names()


def reset_random_numbers(module: ModuleType | None) -> None:
    """Reset the random generators of a test's module, and of all it may import, to their seeds."""
    ours = (m for name, m in [*sys.modules.items()] if name.startswith("tests."))
    for one in (module, *ours):
        for value in vars(one).values() if one else ():
            if isinstance(value, np.random.Generator):
                made = value.bit_generator
                made.state = type(made)(made.seed_seq.entropy).state


def reset_layer_names() -> None:
    """Count the names that Keras gives to layers ("conv2d", "conv2d_1") from the start again."""
    keras = sys.modules.get("tf_keras")
    if keras is not None:
        keras.backend.reset_uids()


@pytest.fixture(autouse=True)
def no_width_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove a width from the environment, which would break lines of printed tables."""
    monkeypatch.delenv("COLUMNS", raising=False)
