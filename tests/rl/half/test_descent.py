"""Scaled losses, and optimizers, in models other than SAC."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from qgraph.errors import TrainingError, UsageError
from qgraph.rl.half.average import SCALE, Average
from qgraph.rl.half.descent import Descent
from qgraph.rl.half.hadam import HAdam, LowPrecisionAdam
from qgraph.rl.half.precision import precision_of
from qgraph.rl.half.scaling import FIRST_SCALE, LossScale
from qgraph.rl.half.standardize import StandardizedDense


def variable(value=1.0, dtype=tf.float16):
    return tf.Variable([value], dtype=dtype)


def descend(descent, gradients):
    """Steps along each gradient of all variables but those named `idle`."""
    for gradient in gradients:
        with tf.GradientTape() as tape:
            moved = [v for name, v in descent.variables.items() if name != "idle"]
            loss = tf.add_n([tf.reduce_sum(v * tf.cast(gradient, v.dtype)) for v in moved])
        descent.minimize(tape, loss)


@pytest.mark.parametrize("kind", [LowPrecisionAdam, HAdam])
def test_overflowing_squares_of_gradients_lower_the_loss_scale(kind):
    """2^13 times 0.5 is finite in float16, its square is not."""
    x = variable()
    descent = Descent({"x": x}, kind(1e-2), LossScale(), compound=True)
    descend(descent, [0.5] * 20)
    wanted = variable(dtype=tf.float64)
    descend(
        Descent({"x": wanted}, LowPrecisionAdam(1e-2)), [0.5] * int(descent.optimizer.iterations)
    )
    assert (float(descent.scale.value) < FIRST_SCALE) == (kind is LowPrecisionAdam)
    assert int(descent.optimizer.iterations) > 10
    assert float(x[0]) == pytest.approx(float(wanted[0]), abs=2e-2)
    assert np.isfinite(descent.optimizer.second[0].numpy()).all()


def test_what_rounding_makes_infinite_is_not_taken():
    """With 3 significand bits 64000 is nearer to 2^16 than to the largest number."""
    x, rounded = variable(0.0), precision_of("float16", 3).rounded
    descent = Descent({"x": x}, HAdam(1e-2, rounded=rounded), LossScale(), compound=True)
    descend(descent, [64000 / FIRST_SCALE])
    assert int(descent.optimizer.iterations) == 0
    assert float(descent.scale.value) == FIRST_SCALE / 2
    descend(descent, [1.0] * 3)
    assert np.isfinite(float(x[0])) and float(x[0]) < 0


@pytest.mark.parametrize("scale", [None, "compound", "usual"])
def test_variables_that_the_loss_does_not_touch(scale):
    variables = {"x": variable(), "idle": variable()}
    loss_scale = None if scale is None else LossScale()
    descent = Descent(variables, HAdam(1e-2), loss_scale, compound=scale == "compound")
    descend(descent, [0.1] * 3)
    assert float(variables["x"][0]) < 1 == float(variables["idle"][0])


def test_a_scale_grows_where_all_was_fine():
    descent = Descent({"x": variable()}, HAdam(1e-3), LossScale(interval=4), compound=True)
    descend(descent, [1e-3] * 9)
    assert float(descent.scale.value) == min(4 * FIRST_SCALE, descent.scale.most)
    assert float(descent.optimizer.gradient_scale) == float(descent.scale.value)


def test_a_scale_grows_after_finite_steps_in_a_row_only():
    descent = Descent({"x": variable()}, HAdam(1e-3), LossScale(interval=4), compound=True)
    descend(descent, [1e-3, 1e-3, np.inf, 1e-3, 1e-3, 1e-3])
    assert float(descent.scale.value) == FIRST_SCALE / 2
    descend(descent, [1e-3])
    assert float(descent.scale.value) == FIRST_SCALE


def test_a_used_optimizer_continues_with_scaled_gradients():
    wanted, x = variable(dtype=tf.float64), variable(dtype=tf.float64)
    one, other = LowPrecisionAdam(1e-2), LowPrecisionAdam(1e-2)
    for made in (Descent({"x": wanted}, one), Descent({"x": x}, other)):
        descend(made, [0.1, 0.3, -0.2])
    descend(Descent({"x": wanted}, one), [0.1] * 5)
    descend(Descent({"x": x}, other, LossScale(), compound=True), [0.1] * 5)
    assert float(x[0]) == float(wanted[0])  # a power of two changes no digit
    assert float(other.gradient_scale) == FIRST_SCALE


@pytest.mark.parametrize("kind", [LowPrecisionAdam, HAdam])
@pytest.mark.parametrize("name", ["clipnorm", "clipvalue", "global_clipnorm", "weight_decay"])
def test_what_does_not_go_with_float16_and_scaled_gradients_is_refused(kind, name):
    with pytest.raises(UsageError, match=f"`{name}` does not work with variables in float16"):
        kind(1e-3, **{name: 0.5}).build([variable()])
    x, optimizer = {"x": variable(dtype=tf.float32)}, kind(1e-3, **{name: 0.5})
    if name == "weight_decay":
        Descent(x, optimizer, LossScale(), compound=True)
        return
    with pytest.raises(UsageError, match=f"`{name}` does not work with compound scaling"):
        Descent(x, optimizer, LossScale(), compound=True)


@pytest.mark.parametrize(
    "given",
    [
        {"first": 0.0},
        {"first": -1.0},
        {"first": np.nan},
        {"first": 2.0**16},
        {"interval": 0},
        {"most": np.inf},
    ],
)
def test_scales_that_make_no_sense(given):
    with pytest.raises(UsageError, match="a loss scale begins with"):
        LossScale(**given)


def test_an_average_outside_its_type_is_reported():
    with pytest.raises(TrainingError, match="scaled by 4096, exceeds the range of its type"):
        Average({"w": variable(16.5)}, 0.5, kahan=True)
    w = variable(15.0)
    average = Average({"w": w}, 1.0, kahan=True)
    w.assign([17.0])
    for _ in range(3):
        average.update()
    with pytest.raises(TrainingError, match="w: the average"):
        average.check()
    assert SCALE == 4096
    Average({"w": variable(16.5)}, 0.5).check()


# -- as Keras has them -----------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
Y = X @ np.array([[0.5], [-1.0], [0.25]], np.float32)
OWN = {kind.__name__: kind for kind in (LowPrecisionAdam, HAdam, StandardizedDense)}


@pytest.mark.parametrize("kind", [LowPrecisionAdam, HAdam])
def test_a_model_learns_is_saved_and_continues(kind, tmp_path):
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(3,))])
    optimizer = kind(0.05, betas=(0.8, 0.99), kahan=True, clipnorm=10.0)
    model.compile(optimizer, "mse")
    model.fit(X, Y, epochs=20, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path, custom_objects=OWN)
    assert type(again.optimizer) is kind
    assert again.optimizer.get_config() == optimizer.get_config()
    for one in (model, again):
        one.fit(X, Y, epochs=20, shuffle=False, verbose=0)
    assert np.array_equal(model.get_weights()[0], again.get_weights()[0])
    assert model.evaluate(X, Y, verbose=0) < 1e-3


def test_a_model_in_float16():
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(3,), dtype="float16")])
    model.compile(HAdam(0.05, kahan=True), "mse")
    model.fit(X, Y, epochs=60, verbose=0)
    assert {v.dtype for v in model.trainable_variables} == {tf.float16}
    assert model.get_weights()[0][:, 0] == pytest.approx([0.5, -1.0, 0.25], abs=0.01)


def test_a_layer_with_standardised_weights(tmp_path):
    layers = [
        StandardizedDense(8, activation="relu", input_shape=(3,), dtype="float16"),
        keras.layers.Dense(1, dtype="float16"),
    ]
    model = keras.Sequential(layers)
    model.compile(HAdam(0.01, kahan=True), "mse")
    model.fit(X, Y, epochs=60, verbose=0)
    assert model.evaluate(X, Y, verbose=0) < 0.1
    kernel, bias, *rest = (w.astype(np.float64) for w in model.get_weights())
    centered = kernel - kernel.mean(0)
    hidden = np.maximum(X @ (centered / kernel.std(0) / np.sqrt(3)) + bias, 0)
    assert model.predict(X, verbose=0) == pytest.approx(hidden @ rest[0] + rest[1], abs=0.02)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", custom_objects=OWN)
    assert np.array_equal(again.predict(X, verbose=0), model.predict(X, verbose=0))


def test_gradients_of_rows_alone():
    table = tf.Variable(tf.ones((4, 2), tf.float16))
    descent = Descent({"table": table}, HAdam(0.1), LossScale(), compound=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [1]))
    descent.minimize(tape, loss)
    assert (table.numpy() == 1).all(1).tolist() == [True, False, True, True]
