"""Ops of TensorFlow between two layers: all have integers, equal in every form."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from qgraph import load, quantize
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler
from tests.helpers.forms import OWN_PROFILES

SIZE = (6, 6, 4)
# Functions of each element, of which each becomes one table.
FUNCTIONS = {
    **{op.__name__: op for op in (tf.sin, tf.cos, tf.atan, tf.asinh, tf.sinh, tf.cosh)},
    **{op.__name__: op for op in (tf.sign, tf.round, tf.math.ceil, tf.floor, tf.abs)},
    "snake": lambda x: x + tf.square(tf.sin(x)),
    "threshold": lambda x: tf.where(x > 0.5, x, tf.zeros_like(x)),
    "soft shrink": lambda x: tf.where(tf.abs(x) > 0.5, x - 0.5 * tf.sign(x), tf.zeros_like(x)),
    "step": lambda x: tf.cast(x > 0.1, tf.float32),
    "logarithm": lambda x: tf.math.log(tf.nn.relu(x) + 0.1),
    "logarithm of a distance": lambda x: tf.math.log(tf.abs(x[:, ::-1]) + 1),
    "mish": lambda x: x * tf.tanh(tf.nn.softplus(x)),
}
MOVES = {
    "roll": lambda x: tf.roll(x, [1, -2], [1, 2]),
    "reverse": lambda x: tf.reverse(x, [1]),
    "gather": lambda x: tf.gather(x, [5, 0, 1, 1, 3, 2], axis=1),
    "tile": lambda x: tf.tile(x[:, :3], [1, 2, 1, 1]),
    "repeat": lambda x: tf.repeat(x[:, :, ::2], 2, axis=2),
    "smallest": lambda x: tf.reduce_min(x, [1, 2], keepdims=True) + x,
    "smallest of channels": lambda x: tf.reduce_min(x, -1, keepdims=True) * x,
}


SUMS = {
    "channels": lambda x: x * tf.reduce_sum(x, -1, keepdims=True),
    "attention": lambda x: x * tf.sigmoid(tf.reduce_mean(x, -1, keepdims=True)),
    "positions": lambda x: x + tf.reduce_sum(x, [1, 2], keepdims=True),
    "all": lambda x: x * tf.reduce_mean(x, [1, 2, 3], keepdims=True),
    "so far": lambda x: tf.cumsum(x, 1),
    "padded": lambda x: tf.pad(x[:, :4, :4], [[0, 0], [1, 1], [2, 0], [0, 0]], constant_values=0.7),
    "padded pool": lambda x: tf.nn.max_pool2d(
        tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], constant_values=-np.inf), 3, 1, "VALID"
    ),
}
layers = keras.layers
NORMS = {
    "groups": lambda x: layers.GroupNormalization(2, gamma_initializer="random_uniform")(x),
    "instance": lambda x: layers.GroupNormalization(-1, beta_initializer="random_normal")(x),
    "layer": lambda x: layers.LayerNormalization([1, 2, 3], gamma_initializer="random_uniform")(x),
    "unit": lambda x: layers.UnitNormalization()(x),
    "instance, written out": lambda x: (
        (x - tf.reduce_mean(x, [1, 2], True))
        / tf.sqrt(tf.math.reduce_variance(x, [1, 2], True) + 1e-5)
    ),
    "log-softmax": lambda x: tf.nn.log_softmax(x),
    "local response": lambda x: tf.nn.lrn(x, 1, bias=1.0, alpha=0.5, beta=0.75),
    "length": lambda x: x * tf.norm(x, axis=-1, keepdims=True),
    "log of sum": lambda x: x - tf.reduce_logsumexp(x, -1, keepdims=True),
    "quotient": lambda x: x / (1 + tf.abs(x[..., ::-1])),
    "quotient of a sum": lambda x: x / (0.5 + tf.reduce_sum(tf.abs(x), -1, keepdims=True)),
    "rms of images": lambda x: (
        x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), [1, 2, 3], True) + 1e-6) * [1.0, 2, 3, 4]
    ),
}
WITHOUT_STATISTICS = (
    "log-softmax", "local response", "length", "log of sum", "quotient", "quotient of a sum",
)  # fmt: skip
ALL = {"functions": FUNCTIONS, "moves": MOVES, "sums": SUMS, "norms": NORMS}


@needs_compiler
@pytest.mark.parametrize("name", ALL)
def test_all_have_integers(tmp_path, name) -> None:
    keras.utils.set_random_seed(0)
    x, ops = layers.Input(SIZE, name="x"), ALL[name]
    h = layers.Conv2D(4, 3, padding="same", bias_initializer="random_normal")(x)
    made = [layers.Conv2D(3, 1)(op(h)) for op in ops.values()]
    model = keras.Model(x, layers.Conv2D(2, 1)(layers.Add()(made)))
    graph = assert_exact(tmp_path, model)
    if ops is FUNCTIONS:
        tables = [n for n in graph.nodes.values() if n.op == "lookup"]
        assert len(tables) == len(FUNCTIONS) - 1  # abs has an op of its own
    if ops is NORMS:
        norms = [n for n in graph.nodes.values() if n.op == "standardize"]
        assert len(norms) == len(NORMS) - len(WITHOUT_STATISTICS)


@needs_compiler
def test_convolutions_of_sequences_have_integers(tmp_path) -> None:
    keras.utils.set_random_seed(0)
    h = x = layers.Input((12, 3), name="x")
    for layer in (
        layers.Conv1D(4, 3, padding="same"),
        layers.Conv1D(4, 3, padding="causal", dilation_rate=2),
        layers.Conv1D(4, 2, padding="same", dilation_rate=3),
        layers.Conv1DTranspose(4, 3, strides=2, padding="same"),
        layers.GroupNormalization(2),
        layers.Dense(2),
    ):
        h = layer(layers.ReLU()(h))
    graph = assert_exact(tmp_path, keras.Model(x, h))
    assert not {"space_to_batch", "opaque"} & {n.op for n in graph.nodes.values()}


def assert_exact(folder, model) -> Graph:
    """Quantize a model; assert that nothing stays float and that all forms are equal."""
    shape = (16, *model.input_shape[1:])
    data = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    (wanted,) = evaluate(load(model), {"x": data}).values()
    np.testing.assert_allclose(wanted, model(data), rtol=1e-4, atol=1e-4)
    result = quantize(model, {"x": data}, effort="plain")
    assert not [r for r in result.trace.refusals if r.reason.startswith("stays float")]
    assert result.facts.agreement.sqnr > 15
    found = verify(result.save(folder / "out"))
    assert found.equal and not set(found.refused) - {*OWN_PROFILES}
    return result.graph
