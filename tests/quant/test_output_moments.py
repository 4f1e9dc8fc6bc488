"""Squared errors of a layer's output, for numbers of any magnitude."""

import numpy as np
import pytest

from qgraph.quant.reconstruction.output_moments import OutputMoments, RowErrors

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1, 64, 8)).astype(np.float32)
REST = RNG.normal(size=(1, 64, 3)).astype(np.float32)
OFF = RNG.normal(size=(1, 8, 3))


@pytest.mark.parametrize("kind", [OutputMoments.of, lambda x, rest, each: RowErrors(x, rest)])
@pytest.mark.parametrize(("inputs", "weights"), [(-80, 0), (-60, -60), (70, -60), (60, 0)])
def test_errors_do_not_depend_on_the_magnitude(kind, inputs: int, weights: int) -> None:
    """Squares of small numbers are 0 in float32, those of large ones infinite."""

    def errors(inputs: int, weights: int) -> np.ndarray:
        scale = np.float32(2.0) ** np.float32(inputs)
        rest = np.ldexp(REST, inputs + weights)
        return kind(X * scale, rest, map).errors(np.ldexp(OFF, weights), map)

    found = np.ldexp(errors(inputs, weights), -2 * (inputs + weights))
    np.testing.assert_allclose(found, errors(0, 0), rtol=1e-4)
