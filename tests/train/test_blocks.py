"""The loss `blocks`: where blocks end, what it measures, and what training with it reaches."""

from dataclasses import replace

import numpy as np
import pytest
import tf_keras as keras
from hypothesis import given
from hypothesis import strategies as st

import qgraph
from qgraph.errors import UsageError
from qgraph.interpret import evaluate
from qgraph.ir.reading import spec_of
from qgraph.quantized import Quantized
from qgraph.static.agreement import agreement
from qgraph.train.blocks import block_ends, relative_error
from qgraph.train.data import training_data
from qgraph.train.loop import Trainer
from qgraph.train.losses import loss_for
from qgraph.train.options import Options
from tests.helpers import retraining
from tests.helpers.retraining import images, trainer

layers = keras.layers


def _quantized(outputs: dict, profile: str = "graffitist-int8") -> Quantized:
    """A network with the input `image` and these outputs, calibrated on images of `retraining`."""
    model = keras.Model(outputs.pop("image"), outputs)
    graph = qgraph.load(model)
    return qgraph.quantize(graph, images(32), profile=profile, plan="plain", mode="retrain")


def _teachers(made: Quantized) -> list[str]:
    return [end.teacher.split("/")[-2] for end in block_ends(made.graph, made.floating)]


# -- blocks -----------------------------------------------------------------------------------


def test_a_block_ends_where_all_paths_meet() -> None:
    """A chain of layers, then a residual block: nothing inside of it is an end."""
    keras.utils.set_random_seed(0)
    image = keras.Input([8, 8, 3], name="image")
    x = layers.Conv2D(4, 3, padding="same", activation="relu", name="one")(image)
    x = layers.Conv2D(4, 3, padding="same", activation="relu", name="two")(x)
    y = layers.Conv2D(6, 3, padding="same", activation="relu", name="within")(x)
    y = layers.Conv2D(4, 3, padding="same", name="last")(y)
    x = layers.ReLU(name="behind")(layers.Add(name="sum")([x, y]))
    x = layers.Conv2D(4, 3, activation="relu", name="three")(x)
    x = layers.Dense(5, name="digit")(layers.Flatten()(x))
    assert _teachers(_quantized({"image": image, "y": x})) == ["two", "behind"]


def test_no_block_ends_beside_a_value_that_is_used_later() -> None:
    keras.utils.set_random_seed(0)
    image = keras.Input([8, 8, 3], name="image")
    x = first = layers.Conv2D(4, 3, padding="same", activation="relu", name="first")(image)
    for i in range(4):
        x = layers.Conv2D(4, 3, padding="same", activation="relu", name=f"deep{i}")(x)
    x = layers.Conv2D(3, 3, name="head")(layers.Concatenate()([first, x]))
    assert _teachers(_quantized({"image": image, "y": x})) == ["concatenate"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Quantized:
    return retraining.quantized(tmp_path_factory.mktemp("net"))


def test_ends_stand_for_the_same_value_in_both_networks(made) -> None:
    ends = block_ends(made.graph, made.floating)
    assert ends
    x = {made.graph.inputs[0]: images(16, seed=5)}
    found = evaluate(made.graph, x, [end.value for end in ends])
    wanted = evaluate(made.floating, x, [end.teacher for end in ends])
    for end in ends:
        assert np.corrcoef(found[end.value].ravel(), wanted[end.teacher].ravel())[0, 1] > 0.8


# -- the loss ---------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_the_relative_error_is_that_of_energies(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    wanted = (scale * rng.normal(size=(4, 6))).astype(np.float32)
    found = (wanted + scale * rng.normal(size=(4, 6))).astype(np.float32)
    noise = np.square(found.astype(float) - wanted).sum() / np.square(wanted.astype(float)).sum()
    np.testing.assert_allclose(float(relative_error(found, wanted)), noise, rtol=1e-5)
    assert float(relative_error(wanted, wanted)) == 0
    assert float(relative_error(found, np.zeros_like(wanted))) == 0


def test_the_loss_is_the_sum_over_blocks_and_the_divergence_of_classes(made) -> None:
    loss = loss_for(made.graph, made.floating, False, "blocks")
    teacher = loss_for(made.graph, made.floating, False, "teacher")
    x = {made.graph.inputs[0]: images(16, seed=5)}
    found = evaluate(made.graph, x, loss.values)
    wanted = evaluate(made.floating, x, [teacher.teacher, *(end.teacher for end in loss.ends)])
    assert [end.value for end in loss.ends][-1] == teacher.value
    errors = [float(relative_error(found[e.value], wanted[e.teacher])) for e in loss.ends]
    expected = sum(errors) + float(teacher(found, wanted, None))
    np.testing.assert_allclose(float(loss(found, wanted, None)), expected, rtol=1e-6)


def _two_outputs() -> Quantized:
    keras.utils.set_random_seed(0)
    image = keras.Input([8, 8, 3], name="image")
    x = layers.Conv2D(6, 3, padding="same", activation="relu")(image)
    x = layers.Conv2D(6, 3, padding="same", activation="relu")(x)
    near, far = (
        layers.Conv2D(2, 3, name="near")(x),
        layers.Dense(5, name="far")(layers.Flatten()(x)),
    )
    return _quantized({"image": image, "near": near, "far": far}, "graffitist-int4")


def test_all_outputs_are_trained_unless_one_is_chosen() -> None:
    made = _two_outputs()
    all_of_them = loss_for(made.graph, made.floating, False, "blocks")
    assert all_of_them.classes is None
    names = list(made.graph.outputs)
    chosen = loss_for(made.graph, made.floating, False, "blocks", names[-1])
    assert len(all_of_them.ends) == len(chosen.ends) + 1
    with pytest.raises(UsageError, match="2 outputs"):
        loss_for(made.graph, made.floating, False, "mse")


# -- training ---------------------------------------------------------------------------------


def test_training_brings_every_block_nearer_to_float() -> None:
    """Without labels, on outputs that are not classes, from the static network."""
    made = _two_outputs()
    name = made.graph.inputs[0]
    data, held = (
        training_data({name: images(count, seed=seed)}, made.graph, 16, 0)
        for count, seed in ((96, 2), (48, 3))
    )
    options = Options(epochs=20, batch_size=16, loss="blocks", step_rate=0.02, threshold_rate=1e-3)
    run = Trainer(made.graph, made.floating, (), data, held, options)
    run.run()
    assert run.best_score.accuracy is None
    assert run.best_score.loss < 0.8 * run.history[0].loss
    found, x = run.model.finalized(), {name: images(64, seed=9)}
    before = agreement(made.floating, made.graph, x).sqnr
    assert agreement(made.floating, found, x).sqnr > before


def test_a_rate_in_steps_moves_each_code_as_far(made) -> None:
    """Adam's first step is the rate, in the direction of the gradient, for every element."""
    options = Options(epochs=1, batch_size=96, loss="blocks", step_rate=0.25, threshold_rate=0)
    run = trainer(made, options, data=retraining.batches(made, size=96))
    before = {name: v.numpy() for name, v in run.model.weights.items()}
    run.run()
    exponents = set()
    for node in made.graph.topological():
        if node.op != "quantize" or spec_of(node).role != "weight":
            continue
        name, exponent = node.inputs[0], spec_of(node).exponent
        moved = np.ldexp(np.abs(run.model.weights[name].numpy() - before[name]), exponent)
        assert moved.max() <= 0.25 * (1 + 1e-5)
        assert np.median(moved) > 0.2499  # Adam's epsilon shortens steps of small gradients
        exponents.add(exponent)
    assert len(exponents) > 1


def test_rates_in_steps_belong_to_the_options_of_a_run(made, tmp_path) -> None:
    options = Options(epochs=1, batch_size=16, loss="blocks", step_rate=0.003)
    trainer(made, options, folder=tmp_path).run()
    with pytest.raises(UsageError, match=r"step_rate 0.003, not None"):
        trainer(made, replace(options, step_rate=None), folder=tmp_path).run()
