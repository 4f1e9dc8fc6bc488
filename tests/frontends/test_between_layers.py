"""Ops of TensorFlow between two layers: all have integers, equal in every form."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from qgraph import quantize
from qgraph.verification.verify import verify
from tests.helpers.c_programs import needs_compiler

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


@needs_compiler
@pytest.mark.parametrize("ops", [FUNCTIONS, MOVES], ids=["functions", "moves"])
def test_all_have_integers(tmp_path, ops) -> None:
    keras.utils.set_random_seed(0)
    x = keras.layers.Input(SIZE, name="x")
    h = keras.layers.Conv2D(4, 3, padding="same", bias_initializer="random_normal")(x)
    made = [keras.layers.Conv2D(3, 1)(op(h)) for op in ops.values()]
    model = keras.Model(x, keras.layers.Conv2D(2, 1)(keras.layers.Add()(made)))
    data = np.random.default_rng(0).normal(size=(16, *SIZE)).astype(np.float32)
    result = quantize(model, {"x": data}, effort="plain")
    assert not [r for r in result.trace.refusals if r.reason.startswith("stays float")]
    found = verify(result.save(tmp_path / "out"))
    assert found.equal and not found.refused
    if ops is FUNCTIONS:
        tables = [n for n in result.graph.nodes.values() if n.op == "lookup"]
        assert len(tables) == len(FUNCTIONS) - 1  # abs has an op of its own
