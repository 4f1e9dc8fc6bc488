"""Steps that the benchmark times are training steps, and all of them start from one network."""

import pytest
import tf_keras as keras

from benchmarks.training_step import FLOAT, QUANTIZED, QUANTIZED_FROZEN, Case, milliseconds, step_of
from tests.helpers.retraining import keras_network

layers = keras.layers


def network() -> keras.Model:
    inner = keras_network()
    return keras.Model(inner.input, layers.Dense(10, activation="softmax")(inner.output))


CASE = Case(network, (8, 8, 3), batch=16)


@pytest.mark.parametrize("variant", [FLOAT, QUANTIZED, QUANTIZED_FROZEN])
def test_a_step_lowers_the_loss(variant, monkeypatch):
    monkeypatch.setattr("benchmarks.training_step.RATE", 1e-3)
    step = step_of(variant, CASE)
    losses = [float(step()) for _ in range(12)]
    assert losses[-1] < losses[0] < 10


def test_both_clocks_are_read_for_each_variant():
    found = milliseconds(CASE, [FLOAT, QUANTIZED_FROZEN], rounds=2)
    assert list(found) == [FLOAT, QUANTIZED_FROZEN]
    assert all(len(clocks) == 2 and min(clocks) > 0 for clocks in found.values())
