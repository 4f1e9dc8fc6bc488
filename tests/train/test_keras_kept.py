"""Saved parts of a Keras model: events for TensorBoard, weights, checkpoints."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from qgraph import retrain
from qgraph.errors import LoadError, TrainingError, UsageError
from qgraph.interpret import evaluate
from qgraph.ir.printing import print_graph
from qgraph.train.callbacks import FreezeThresholds, KeepBest, StopAtNan, ThresholdBoard
from tests.helpers.keras_models import BATCH, arrays, compiled, same, samples, scalars
from tests.helpers.trained import images


def test_events_for_tensorboard(plain, tmp_path):
    model = compiled(plain)
    board = ThresholdBoard(tmp_path, every=3)
    history = model.fit(samples(), batch_size=BATCH, epochs=2, verbose=0, callbacks=[board]).history
    found = scalars(tmp_path)
    assert [*found["loss"]] == [3, 4, 7, 8]
    np.testing.assert_allclose([found["loss"][4], found["loss"][8]], history["loss"], rtol=1e-6)
    ranges, gradients = model.freezing.ranges.numpy(), model.freezing.latest.numpy()
    for name, log2, gradient in zip(model.network.quantizers.names, ranges, gradients, strict=True):
        ours = {what: found[f"thresholds/{name}/{what}"][8] for what in WHAT}
        assert ours == {"log2": log2, "exponent": -np.ceil(log2), "gradient": gradient}
    exponents = {
        n.attrs["spec"].exponent for n in model.finalized().topological() if "spec" in n.attrs
    }
    assert {
        found[f"thresholds/{n}/exponent"][8] for n in model.network.quantizers.names
    } <= exponents
    assert gradients.any() and found["thresholds/frozen"][8] == 0


WHAT = ("log2", "exponent", "gradient")


@pytest.mark.parametrize("file", ["w.h5", "w.weights.h5", "w"])
def test_weights_are_saved_and_loaded(file, small, tmp_path):
    model = compiled(small)
    model.fit(images(), batch_size=BATCH, verbose=0)
    model.freezing.freeze([1])
    model.save_weights(tmp_path / file)
    other = compiled(small)
    status = other.load_weights(tmp_path / file)
    if status is not None:
        status.expect_partial()
    assert same(model.get_weights(), other.get_weights())
    assert other.freezing.count() == 1
    assert print_graph(other.finalized()) == print_graph(model.finalized())
    third = retrain.keras_model(small)
    third.set_weights(model.get_weights())
    assert print_graph(third.finalized()) == print_graph(model.finalized())


def test_a_model_is_not_saved_whole(plain, tmp_path):
    with pytest.raises(UsageError, match="cannot be saved as a whole"):
        retrain.keras_model(plain).save(tmp_path / "model.keras")


def test_checkpoints_are_for_the_network_they_are_of(plain, small, tmp_path):
    out = retrain.save(plain, tmp_path / "out")
    with pytest.raises(LoadError, match="another network"):
        retrain.save_checkpoint(retrain.keras_model(small), out)
    with pytest.raises(LoadError, match="not a training directory"):
        retrain.save_checkpoint(retrain.keras_model(plain), tmp_path / "nothing")
    with pytest.raises(LoadError):
        retrain.load_checkpoint(retrain.keras_model(plain), out)
    assert not (out / "checkpoints").exists()


def test_the_best_epoch_is_kept(plain, tmp_path):
    out, model, losses, graphs = retrain.save(plain, tmp_path / "out"), compiled(plain), [], []

    class See(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:  # so that it gets worse
                self.model.optimizer.learning_rate.assign(5.0)

        def on_epoch_end(self, epoch, logs=None):
            losses.append(logs["val_loss"])
            graphs.append(print_graph(self.model.finalized()))

    x = samples()
    taught = evaluate(plain.floating, {"x": x})["p"]
    keep = [See(), KeepBest(out)]
    model.fit(x, taught, validation_data=(x, taught), epochs=4, verbose=0, callbacks=keep)
    best = int(np.argmin(losses))
    assert 0 < losses[best] < losses[-1]
    assert print_graph(retrain.finalize(out).graph) == graphs[best] != graphs[-1]
    with pytest.raises(UsageError, match="unknown metric `val_accuracy`"):
        model.fit(x, verbose=0, callbacks=[KeepBest(out, "val_accuracy")])


def test_settings_of_callbacks_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown mode of KeepBest `maximum`; choose auto, min"):
        KeepBest("out", mode="maximum")
    with pytest.raises(UsageError, match="must be at least 1: 0"):
        FreezeThresholds(every=0)
    signs = {KeepBest("out", m, "auto").sign for m in ("val_accuracy", "val_loss")}
    assert signs == {1.0, -1.0} and KeepBest("out", "val_accuracy", "auto").sign == 1.0


def test_what_is_not_finite_is_not_kept(plain, tmp_path):
    out, model, bad = retrain.save(plain, tmp_path / "out"), compiled(plain), samples()
    retrain.save_checkpoint(model, out)
    before = (out / "checkpoints/best.npz").read_bytes()
    bad[3] = np.nan
    model.fit(bad, batch_size=64, verbose=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a threshold of log2 t"):
        model.fit(samples(), verbose=0)
    for keep in (lambda: retrain.save_checkpoint(model, out), model.finalized):
        with pytest.raises(TrainingError, match=r"constant/w0.*: training led to NaN"):
            keep()
    assert (out / "checkpoints/best.npz").read_bytes() == before


def test_what_is_not_finite_stops_fit_and_is_named(plain):
    model, bad = compiled(plain), samples()
    model.fit(bad, batch_size=32, verbose=0, callbacks=[StopAtNan()])
    before = arrays(model.trainable_variables)
    bad[40] = np.nan
    with pytest.raises(tf.errors.InvalidArgumentError, match="`x`, first of all values, is NaN"):
        model.fit(bad[32:], batch_size=32, verbose=0)
    assert same(arrays(model.trainable_variables), before)
    model.kernels[1].assign(model.kernels[1] * np.nan)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"`w1.*`, first of all"):
        model.fit(samples(), verbose=0)


def test_losses_that_are_not_finite_have_no_layer(plain):
    model = compiled(plain)
    model.compile(keras.optimizers.SGD(), lambda wanted, found: tf.reduce_mean(found) * np.inf)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the loss or a gradient is NaN"):
        model.fit(samples(), verbose=0, callbacks=[StopAtNan()])


def test_averages_of_weights_are_refused(plain):
    """They would move frozen thresholds at the end of `fit`."""
    with pytest.raises(UsageError, match="use_ema=True"):
        compiled(plain, keras.optimizers.SGD(0.01, use_ema=True))
