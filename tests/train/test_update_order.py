"""A step of training reads each variable before its update, in the graph that TensorFlow runs."""

from collections.abc import Callable

import pytest
import tensorflow as tf

import qgraph
from qgraph import retrain
from qgraph.foreign import Tensor
from qgraph.train.fused import fused_ops
from qgraph.train.module import TrainingModule
from qgraph.train.optimizer import Rate, TqtAdam
from tests.helpers.trained import images, trained
from tests.helpers.update_order import unordered_reads

BEHIND = pytest.mark.parametrize("behind_relu", [False, True])
FORMS = [
    "stock",
    pytest.param("library", marks=pytest.mark.skipif(not fused_ops().ops, reason="no library")),
]


def step_of(run: Callable[[Tensor], Tensor], variables: list, optimizer) -> Callable:
    @tf.function
    def step(x: Tensor) -> Tensor:
        with tf.GradientTape() as tape:
            (y,) = run(x).values()
            loss = tf.reduce_sum(y * y)
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss  # the graph optimizer does less for a function without results

    return step


def made(folder, behind_relu: bool):
    """A training directory, and the images it was calibrated with."""
    x = images()
    return retrain.save(qgraph.quantize(trained(behind_relu), x, mode="retrain"), folder / "out"), x


@BEHIND
def test_a_training_module(tmp_path, behind_relu: bool) -> None:
    found, x = made(tmp_path, behind_relu)
    loaded = retrain.load(found)
    module = TrainingModule(loaded.graph, loaded.norms)
    rate = Rate(1e-3, 1.0, 10**6)
    optimizer = TqtAdam(rate, rate, module.freezing)
    variables = [*module.kernels, *module.gammas, *module.thresholds]
    with unordered_reads() as unordered:
        step_of(lambda x: module(x, training=True), variables, optimizer)(tf.constant(x))
    assert module.gammas or behind_relu
    assert not unordered


@BEHIND
@pytest.mark.parametrize("form", FORMS)
def test_a_saved_training_graph(tmp_path, behind_relu: bool, form: str) -> None:
    found, x = made(tmp_path, behind_relu)
    retrain.save_training_graph(found, form)
    model = tf.saved_model.load(str(found / "training_graph"))
    variables = [*model.kernels, *model.gammas, *model.thresholds]
    step = step_of(lambda x: model(x, True, False), variables, tf.keras.optimizers.SGD(1e-3))
    with unordered_reads() as unordered:
        step(tf.constant(x))
    assert not unordered
