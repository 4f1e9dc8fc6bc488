"""Runs of training in separate processes, whose learned numbers go to a file.

    python -m tests.helpers.distributed FOLDER RUN...

RUN is `alone`, `mirrored` (two CPUs) or `workers` (by TF_CONFIG), with `-frozen` or `-moving` batch
norms, or `-loop` for a loop without `fit`. A run with replicas compares them with each other and
with the finalized graph.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras

import qgraph
from qgraph import retrain
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.quantized import Quantized
from qgraph.train.callbacks import FreezeThresholds
from qgraph.train.optimizer import adam_for
from qgraph.train.options import Options
from tests.helpers.trained import images, trained

BATCH, EPOCHS = 16, 2  # of all replicas together


def strategy_of(kind: str) -> tf.distribute.Strategy:
    if kind == "alone":
        return tf.distribute.get_strategy()
    if kind == "workers":
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def batches() -> tf.data.Dataset:
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices(images()).batch(BATCH).with_options(sharding)


def fitted(source: Quantized, strategy: tf.distribute.Strategy, norms: str):
    """Train with `fit`. Frozen: any optimizer. Moving: the optimizer of the command line."""
    with strategy.scope():
        model = retrain.keras_model(source)
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        if norms == "moving":
            optimizer = model.tqt_optimizer(Options(weight_rate=1e-3))
        model.compile(optimizer, model.distillation_loss())
    model.norms_frozen = norms == "frozen"
    model.fit(batches(), epochs=EPOCHS, verbose=0, callbacks=[FreezeThresholds(3, 2)])
    return model


def looped(source: Quantized, strategy: tf.distribute.Strategy):
    """Train with a custom loop, towards outputs of 0."""
    with strategy.scope():
        module = retrain.module(source)
        optimizer = adam_for(Options(weight_rate=1e-3), module.freezing)

    def on_replica(x: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(module(x, training=True)["scores"] ** 2) / BATCH
        variables = module.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    @tf.function
    def step(x: tf.Tensor) -> None:
        strategy.run(on_replica, [x])

    for x in strategy.experimental_distribute_dataset(batches()):
        step(x)
        module.freezing.freeze_next()
    return module


def compare_replicas(model, strategy: tf.distribute.Strategy) -> None:
    for name, variable in model.state.items():
        first, *others = (v.numpy() for v in strategy.experimental_local_results(variable))
        for other in others:
            np.testing.assert_array_equal(other, first, err_msg=name)
    program = TFProgram(emit_graph_def(model.network.finalized()))
    wanted = program.predict("image", images(), "scores", BATCH)

    @tf.function
    def predict(x: tf.Tensor) -> tf.Tensor:
        found = model(x)
        return found["scores"] if isinstance(found, dict) else found

    for replica in strategy.experimental_local_results(strategy.run(predict, [images()])):
        np.testing.assert_array_equal(replica, wanted)


def main(folder: str, *runs: str) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if "TF_CONFIG" not in os.environ:
        (cpu,) = tf.config.list_physical_devices("CPU")
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
        worker = ""
    else:
        worker = str(json.loads(os.environ["TF_CONFIG"])["task"]["index"])
    strategies = {kind: strategy_of(kind) for kind in {run.partition("-")[0] for run in runs}}
    source = qgraph.quantize(trained(), images(), mode="retrain", profile="graffitist-int4")
    for run in runs:
        kind, _, how = run.partition("-")
        strategy = strategies[kind]
        model = looped(source, strategy) if how == "loop" else fitted(source, strategy, how)
        compare_replicas(model, strategy)
        learned = {name: v.numpy() for name, v in model.state.items()}
        np.savez(Path(folder) / f"{run}{worker}.npz", **learned)


if __name__ == "__main__":
    main(*sys.argv[1:])
