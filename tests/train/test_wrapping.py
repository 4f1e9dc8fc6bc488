"""Training with codes that wrap: the values of inference, the gradients of saturation."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from qgraph.ir.graph import Graph
from qgraph.ir.types import Overflow, QuantSpec, Role
from qgraph.numerics import fake_quantize
from qgraph.train.model import TrainingGraph
from qgraph.train.quantizer import Spec


def one_quantizer(spec: QuantSpec) -> TrainingGraph:
    graph = Graph("one")
    x = graph.input("x", "float32", (None,))
    graph.outputs["y"] = graph.add("quantize", x, name="q", attrs={"spec": spec})
    return TrainingGraph(graph)


def learned(spec: QuantSpec, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The output, and gradients of x and of the range."""
    training = one_quantizer(spec)
    with tf.GradientTape() as tape:
        fed = tf.constant(x)
        tape.watch(fed)
        y = training({"x": fed})["y"]
    by_x, by_range = tape.gradient(y, [fed, training.quantizers.ranges])
    return y.numpy(), by_x.numpy(), by_range.numpy()


@pytest.mark.parametrize("signed", [True, False])
def test_values_wrap_and_gradients_are_those_of_saturation(signed):
    x = np.linspace(-3, 3, 97).astype("float32")
    spec = QuantSpec(4, signed, Role.ACTIVATION, 3, overflow=Overflow.WRAP)
    saturating = QuantSpec(4, signed, Role.ACTIVATION, 3)
    y, by_x, by_range = learned(spec, x)
    wanted, *gradients = learned(saturating, x)
    np.testing.assert_array_equal(y, fake_quantize(x, spec))
    assert (y != wanted).any()
    np.testing.assert_array_equal(by_x, gradients[0])
    np.testing.assert_array_equal(by_range, gradients[1])


@given(
    st.integers(2, 16), st.booleans(), st.integers(-20, 20),
    st.sampled_from(["half_even", "half_up", "half_away", "floor"]),
    st.lists(
        st.floats(-(2.0**40), 2.0**40, width=32, allow_subnormal=False), min_size=1, max_size=20
    ),
)  # fmt: skip
def test_wrapped_values_are_those_of_the_reference(bits, signed, exponent, rounding, numbers):
    x = np.array(numbers, "float32")
    spec = QuantSpec(bits, signed, Role.ACTIVATION, exponent, rounding, Overflow.WRAP)
    log2_t = tf.constant(float(bits - signed - exponent))
    found = Spec(bits, signed, rounding, 0, wraps=True).forward(tf.cast(x, tf.float64), log2_t)
    np.testing.assert_array_equal(tf.cast(found, tf.float32), fake_quantize(x, spec))
