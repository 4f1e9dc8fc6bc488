"""Random numbers of a test do not depend on the tests before it in the same process."""

import numpy as np
import pytest

from tests.frontends.onnx import test_loading
from tests.helpers import onnx_graphs


@pytest.mark.parametrize("module", [onnx_graphs, test_loading], ids=["helper", "other tests"])
@pytest.mark.parametrize("turn", ["first", "second"])
def test_modules_draw_the_same_numbers_in_every_test(module, turn: str) -> None:
    wanted = np.random.default_rng(module.RANDOM.bit_generator.seed_seq.entropy)
    np.testing.assert_array_equal(module.f(3), wanted.standard_normal(3).astype(np.float32))


@pytest.fixture(scope="module", params=["one", "another"])
def drawn(request) -> np.ndarray:
    return onnx_graphs.f(3)


def test_fixtures_of_a_module_draw_the_same_numbers(drawn) -> None:
    wanted = np.random.default_rng(onnx_graphs.RANDOM.bit_generator.seed_seq.entropy)
    np.testing.assert_array_equal(drawn, wanted.standard_normal(3).astype(np.float32))
    onnx_graphs.f(7)
