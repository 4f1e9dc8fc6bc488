"""The training graph in scripts: as a Keras model, as a module, and what callbacks do."""

import importlib.util
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

import qgraph
from qgraph import retrain
from qgraph.backends.tf.program import TFProgram
from qgraph.errors import UsageError
from qgraph.exact.reference import Reference
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.train.callbacks import FreezeBatchNorms, FreezeThresholds
from qgraph.train.keras import QuantizedModel
from qgraph.train.optimizer import adam_for
from qgraph.train.options import Options
from tests.helpers.keras_models import (
    BATCH,
    arrays,
    assert_is_inference,
    compiled,
    same,
    samples,
    scalars,
)
from tests.helpers.trained import images
from tests.train.test_training_graph import calibrated

DIGITS = Path(__file__).parents[2] / "examples/digits"


# -- what it computes ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_random_networks_predict_what_inference_does(seed):
    graph, feeds = calibrated(seed)
    floating = qgraph.quantize(graph_of(seed), feeds, mode="retrain").floating
    model = QuantizedModel(graph, floating)
    model.compile(keras.optimizers.Adam(0.01), model.distillation_loss())
    (x,) = feeds.values()
    before = print_graph(model.finalized())
    assert_is_inference(model, x, 4)
    model.fit(x, batch_size=4, epochs=2, verbose=0)
    assert print_graph(model.finalized()) != before
    assert_is_inference(model, x, 4)
    wanted = Reference(model.finalized()).outputs(feeds)
    found = model.predict(x, batch_size=8, verbose=0)
    for name, value in found.items() if isinstance(found, dict) else [(*wanted, found)]:
        np.testing.assert_array_equal(value, wanted[name])


def test_digits_as_a_user_would(tmp_path):
    keras.utils.set_random_seed(0)
    split = digits()
    result = qgraph.quantize(
        DIGITS / "digits.pb",
        {"image": split.train.images[:64]},
        mode="retrain",
        profile="graffitist-int4",
    )
    out = retrain.save(result, tmp_path / "out")
    model = retrain.keras_model(out)
    model.compile(
        model.tqt_optimizer(Options(weight_rate=1e-3)),
        "sparse_categorical_crossentropy",
        ["accuracy"],
    )
    test = split.test.images, split.test.labels
    before, _ = model.evaluate(*test, verbose=0)
    train = split.train.images, split.train.labels
    model.fit(*train, epochs=3, verbose=0, callbacks=[FreezeBatchNorms(), FreezeThresholds(40, 4)])
    assert model.norms_frozen and model.freezing.count() > 3
    loss, accuracy = model.evaluate(*test, verbose=0)
    assert loss < before
    assert_is_inference(model, split.test.images, 32)

    retrain.save_checkpoint(model, out)
    final = retrain.finalize(out)
    assert print_graph(final.graph) == print_graph(model.finalized())
    program = TFProgram(final.save(tmp_path / "inference") / "inference.pb")
    classes = program.predict("image", split.test.images, "probabilities").argmax(1)
    assert np.isclose((classes == split.test.labels).mean(), accuracy, atol=1e-6)

    again = retrain.keras_model(out)
    retrain.load_checkpoint(again, out)
    assert print_graph(again.finalized()) == print_graph(model.finalized())


def test_sums_that_float32_does_not_hold():
    """Those of 16 bits by 8 are past it; how many are depends on the weights."""
    rng, g = np.random.default_rng(0), Graph("wide")
    x = g.input("x", "float32", (None, 200))
    w = g.const(rng.uniform(size=(200, 64)).astype("float32"), "w")
    g.outputs["y"] = g.add("matmul", x, w, name="fc")
    data = rng.uniform(size=(128, 200)).astype("float32")
    model = compiled(qgraph.quantize(g, data, mode="retrain", profile="policy-int8"))
    (weights, *_) = model.kernels
    for factor, wide in ((1 / 4096, frozenset()), (4096, {"fc"})):
        weights.assign(weights * factor)
        assert model.network.wide_now() == wide
        assert_is_inference(model, data, BATCH)
        np.testing.assert_array_equal(model(data), model.predict(data, verbose=0))
    module = retrain.module(qgraph.quantize(g, data, mode="retrain", profile="policy-int8"))
    np.testing.assert_array_equal(module(data)["y"], model(data))


def test_several_outputs_come_by_name():
    g = Graph("two")
    x = g.input("x", "float32", (None, 3))
    w = g.const(np.eye(3, dtype=np.float32), "w")
    g.outputs.update(scores=g.add("matmul", x, w), image=g.add("relu", x))
    result = qgraph.quantize(g, samples()[:, :3], mode="retrain")
    model = compiled(result)
    assert {k: type(v).__name__ for k, v in model.distillation_loss().items()} == {
        "scores": "Divergence",
        "image": "Divergence",
    }
    assert set(model.fit(samples()[:, :3], verbose=0).history) == {
        "loss",
        "scores_loss",
        "image_loss",
    }
    assert_is_inference(model, samples()[:, :3], BATCH)


def test_inputs_by_name_in_order_or_alone(plain):
    model, x = retrain.keras_model(plain), samples()
    wanted = model(x)
    for inputs in ({"x": x}, [x], (x,), x.astype("float64")):
        np.testing.assert_array_equal(model(inputs), wanted)
    with pytest.raises(UsageError, match="the network has the inputs `x`; `y` were given"):
        model({"y": x})
    with pytest.raises(UsageError, match="2 were given"):
        model([x, x])


def test_a_network_for_one_sample_takes_one_at_a_time(tmp_path):
    g, x = Graph("one"), samples()
    w = g.const(np.eye(6, dtype=np.float32), "w")
    g.outputs["y"] = g.add("matmul", g.input("x", "float32", (1, 6)), w)
    source = qgraph.quantize(g, x, mode="retrain")
    model = compiled(source)
    model.fit(x, batch_size=1, verbose=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected shape"):
        model.fit(x, batch_size=BATCH, verbose=0)
    with pytest.raises(UsageError, match=r"`x` takes the shape 1,6, not 64,6; .* x=[?],6"):
        model(x)
    out = retrain.save(source, tmp_path / "out")
    with pytest.raises(UsageError, match="takes the shape 1,6, not 16,6"):
        retrain.train(out, x)


# -- without labels ------------------------------------------------------------------------------


def test_tensorflow_warns_of_nothing(plain, monkeypatch, caplog):
    """AutoGraph warns, once per function, of code that it cannot rewrite."""
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    model, x = compiled(plain), samples()
    model.fit(x, batch_size=BATCH, verbose=0)
    model.evaluate(x, batch_size=BATCH, verbose=0)
    model.predict(x, batch_size=BATCH, verbose=0)
    assert not caplog.records


def test_without_labels_the_float_network_teaches(plain):
    model, x = compiled(plain, keras.optimizers.Adam(0.003)), samples()
    wanted = evaluate(plain.floating, {"x": x})["p"].astype("float64")
    found = model.predict(x, verbose=0).astype("float64")
    divergence = (wanted * np.log(wanted / found)).sum(1).mean()
    assert model.evaluate(x, verbose=0) == pytest.approx(divergence, rel=1e-4)
    model.fit(x, batch_size=64, epochs=100, verbose=0, shuffle=False)
    after = model.evaluate(x, verbose=0)
    assert after < 0.5 * divergence, after


def test_logits_are_compared_as_probabilities(small):
    model, x = compiled(small), images()
    assert model.distillation_loss().from_logits
    a, b = (
        tf.nn.softmax(v)
        for v in (evaluate(small.floating, {"image": x})["scores"], model.predict(x, verbose=0))
    )
    wanted = keras.losses.KLDivergence()(a, b)
    assert model.evaluate(x, verbose=0) == pytest.approx(float(wanted), rel=1e-3)


# -- thresholds and batch norms ------------------------------------------------------------------

OPTIMIZERS = {
    "momentum": lambda model: keras.optimizers.SGD(0.01, momentum=0.9),
    "decay": lambda model: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "legacy": lambda model: keras.optimizers.legacy.Adam(0.01),
    "tqt": lambda model: model.tqt_optimizer(),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_frozen_thresholds_stay_under_any_optimizer(name, plain):
    model = retrain.keras_model(plain)
    model.compile(OPTIMIZERS[name](model), model.distillation_loss())
    ranges = model.freezing.ranges
    model.fit(samples(), batch_size=BATCH, verbose=0)  # there is momentum now
    before, seen = ranges.numpy(), model.freezing.gradient.numpy()
    *_, third, second, first = np.argsort(seen)
    model.freezing.freeze([first, third])
    model.fit(samples(), batch_size=BATCH, verbose=0)
    moved = set(np.flatnonzero(before != ranges.numpy()))
    assert not moved & {first, third}
    assert second in moved
    assert (seen != model.freezing.gradient.numpy()).any()  # observed, frozen or not


def test_thresholds_are_frozen_by_schedule_over_calls_of_fit(plain):
    model, counts = compiled(plain), []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            counts.append(self.model.freezing.count())

    for _ in range(2):
        callbacks = [FreezeThresholds(2, 3), Count()]
        model.fit(samples(), batch_size=BATCH, verbose=0, callbacks=callbacks)
    assert counts == [0, 1, 1, 1, 2, 2, 2, 3]


@pytest.mark.parametrize("epochs, moving", [(1, 4), (1.5, 6), (0, 0)])
def test_batch_norms_are_frozen_in_the_middle(epochs, moving, small):
    model, seen = compiled(small), []

    class See(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(arrays(self.model.network.norms.statistics))

    seen.append(arrays(model.network.norms.statistics))
    gammas = arrays(model.gammas)
    callbacks = [FreezeBatchNorms(epochs), See()]
    model.fit(images(), batch_size=BATCH, epochs=2, verbose=0, callbacks=callbacks)
    changed = [not same(a, b) for a, b in itertools.pairwise(seen)]
    assert changed == [True] * moving + [False] * (8 - moving)
    assert not same(gammas, arrays(model.gammas))
    assert_is_inference(model, images(), BATCH)


def test_evaluation_has_running_statistics_before_they_are_frozen(small):
    model = compiled(small)
    model.fit(images(), batch_size=BATCH, verbose=0)
    assert not model.norms_frozen
    assert_is_inference(model, images(), BATCH)
    assert not np.allclose(model(images(), training=True), model(images()), atol=1e-3)


# -- a custom loop -------------------------------------------------------------------------------


def test_a_loop_of_ones_own_does_what_fit_does(small):
    """With another optimizer's step in it, and thresholds that it holds itself."""
    model, module = compiled(small), retrain.module(small)
    assert {v.name for v in module.trainable_variables} == {
        v.name for v in model.trainable_variables
    }
    learning = [*module.kernels, *module.gammas, *module.thresholds]
    assert len(learning) == len(module.trainable_variables)
    optimizer, (ranges,) = keras.optimizers.SGD(0.01), module.thresholds
    for freezing in (model.freezing, module.freezing):
        freezing.freeze([1])
    taught = evaluate(small.floating, {"image": images()})["scores"]
    loss_of = model.distillation_loss()

    @tf.function
    def step(x: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        before = tf.identity(ranges)
        with tf.GradientTape() as tape:
            loss = loss_of(wanted, module(x, training=True)["scores"])
        gradients = tape.gradient(loss, learning)
        optimizer.apply_gradients(zip(gradients, learning, strict=True))
        module.freezing.hold(before, gradients[-1])
        return loss

    losses = [
        float(step(images()[i : i + BATCH], taught[i : i + BATCH])) for i in range(0, 64, BATCH)
    ]
    history = model.fit(images(), taught, batch_size=BATCH, shuffle=False, verbose=0).history
    assert history["loss"][0] == pytest.approx(np.mean(losses), rel=1e-4)
    for name, variable in module.state.items():
        np.testing.assert_allclose(variable, model.state[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert not np.array_equal(ranges, retrain.module(small).thresholds[0])
    module.norms_frozen = True
    found = module(images(), training=True)["scores"]
    np.testing.assert_array_equal(found, module({"image": images()})["scores"])


def test_the_optimizer_of_the_command_line_in_a_loop(plain):
    module = retrain.module(plain)
    optimizer = adam_for(Options(weight_rate=1e-3), module.freezing)
    module.freezing.freeze([0])
    before = module.thresholds[0].numpy()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(module(samples())["p"] ** 2)
    gradients = tape.gradient(loss, module.trainable_variables)
    optimizer.apply_gradients(zip(gradients, module.trainable_variables, strict=True))
    changed = module.thresholds[0].numpy() != before
    assert not changed[0] and changed[1:].any()
    np.testing.assert_array_equal(module.freezing.latest, gradients[-1])


def digits():
    spec = importlib.util.spec_from_file_location("digits_data", DIGITS / "data.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load_digits_split()


def graph_of(seed: int) -> Graph:
    from tests.helpers.generators.graphs import random_graph

    return random_graph(seed, 6, "float32")


@pytest.mark.slow
def test_the_example_runs(tmp_path):
    script = [sys.executable, str(DIGITS / "retrain_keras.py"), str(tmp_path / "out")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(DIGITS.parents[1]), *sys.path])}
    done = subprocess.run(script, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    before, after = (float(part) for part in re.findall(r"([\d.]+)%", done.stdout))
    assert after > before > 90
    assert scalars(tmp_path / "out-board")["thresholds/frozen"][185] == 18
    assert (tmp_path / "out/inference/inference.pb").exists()
