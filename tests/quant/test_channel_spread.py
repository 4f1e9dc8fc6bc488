"""Per-channel scales of channels that are next to nothing."""

import numpy as np

from qgraph.ir.types import QuantSpec
from qgraph.quant.constant_scales import CHANNEL_SPREAD, constant_exponent

SPEC = QuantSpec(8, True, "weight", per_channel=True)


def test_negligible_channels_stay_near_the_others():
    weights = np.ones((3, 4), np.float32) * np.float32([1.0, 0.3, 1e-20, 0.0])
    exponents = constant_exponent(weights, SPEC)
    assert exponents == (7, 8, 7 + CHANNEL_SPREAD, 7 + CHANNEL_SPREAD)


def test_all_zero_weights_have_a_scale():
    assert constant_exponent(np.zeros((3, 2), np.float32), SPEC) == (7, 7)
