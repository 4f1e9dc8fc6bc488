"""A training graph as MetaGraphs with a checkpoint, for scripts with sessions.

A MetaGraph does not keep functions of gradients. So each contains the loss, its gradients and a
step of Adam as ops. This file imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import tensorflow as tf

from qgraph.choices import LossKind, QuantizerForm
from qgraph.foreign import Tensor, TFModule, Variable
from qgraph.ir.graph import Graph
from qgraph.names import tensorflow_name
from qgraph.train.folded import Norm
from qgraph.train.loop import network_of
from qgraph.train.losses import loss_for
from qgraph.train.model import TrainingGraph
from qgraph.train.norms import Update
from qgraph.train.quantizer import quantize
from qgraph.train.saved_graph.names import NETWORK, state_names
from qgraph.train.tqt import ScaledOps, tqt_with

v1: TFModule = tf.compat.v1

STATE = "model.ckpt"
LABELS, LOSS, STEP = "labels", "loss", "train"
RATES = {"weight_rate": 1e-3, "threshold_rate": 1e-2}
BETAS, EPSILON = (0.9, 0.999), 1e-8


def write_meta_graphs(path: Path, graph: Graph, norms: Sequence[Norm]) -> None:
    """Write `batch.meta`, `frozen.meta` and their state.

    Batch norms use the statistics of the batch in the first, and those of inference in the second.

    Tensors: inputs and outputs by name, `labels:0`, `loss:0`, the rates; the op `train` is a step.
    Raises UsageError for a network without one output of classes.
    """
    names = {"batch": True, "frozen": False} if norms else {"frozen": False}
    for name, of_batch in names.items():
        with tf.Graph().as_default(), v1.Session() as session:
            variables = _build(graph, norms, of_batch)
            session.run(v1.global_variables_initializer())
            saver = v1.train.Saver(variables)
            saver.save(session, str(path / STATE), write_meta_graph=False, write_state=False)
            saver.export_meta_graph(str(path / f"{name}.meta"))


def _build(graph: Graph, norms: Sequence[Norm], of_batch: bool) -> dict[str, Variable]:
    """Build the ops in the default graph; all variables by their names in the checkpoint."""
    one_by_one = ScaledOps.stock(partial(quantize, form=QuantizerForm.NATIVE))
    network = TrainingGraph(graph, norms, kind=tqt_with(one_by_one))
    loss_of = loss_for(graph, graph, True, LossKind.LABELS)
    kinds = {name: graph.types[name] for name in graph.inputs}
    inputs = {
        name: v1.placeholder(kind.dtype, kind.shape, tensorflow_name(name))
        for name, kind in kinds.items()
    }
    labels = v1.placeholder(tf.int64, [None], LABELS)
    values, updates = network.values(
        inputs,
        batch_statistics=of_batch,
        wanted=[*loss_of.values, *graph.outputs.values()],
    )
    for name, value in graph.outputs.items():
        tf.identity(values[value], name=tensorflow_name(name))
    loss = tf.identity(loss_of(values, {}, labels), name=LOSS)
    rates = [v1.placeholder_with_default(rate, [], name) for name, rate in RATES.items()]
    weights = [*network.kernels, *network.gammas]
    pairs = [(v, rates[0]) for v in weights] + [(v, rates[1]) for v in network.thresholds]
    named = network.named_variables()
    state = {name: named[key] for key, name in state_names(named).items()}
    state[NETWORK] = tf.Variable(network_of(graph), trainable=False, name=NETWORK)
    return state | _adam(loss, pairs, updates)


def _adam(
    loss: Tensor, pairs: Sequence[tuple[Variable, Tensor]], updates: Sequence[Update]
) -> dict[str, Variable]:
    """Add the op `train`: a step of Adam, and `updates`. Returns its variables by name.

    pairs: the variables to train, each with its rate.
    """

    def held(value: Tensor, name: str) -> Variable:
        state[name] = tf.Variable(value, trainable=False, name=name)
        return state[name]

    state: dict[str, Variable] = {}
    step = held(tf.constant(0, tf.int64), "adam_step")
    moments = [
        [held(tf.zeros(variable.shape), f"adam_{name}_{i}") for name in ("first", "second")]
        for i, (variable, _) in enumerate(pairs)
    ]
    t = tf.cast(step + 1, tf.float32)
    gradients = v1.gradients(loss, [variable for variable, _ in pairs])
    # All that a step reads is read before anything changes.
    with tf.control_dependencies([g for g in gradients if g is not None] + [t]):
        updated = [variable.assign(value) for variable, value in updates]
        for (variable, rate), (m, v), gradient in zip(pairs, moments, gradients, strict=True):
            if gradient is None:
                continue
            updated.append(
                tf.raw_ops.ResourceApplyAdam(
                    var=variable.handle, m=m.handle, v=v.handle, grad=gradient, lr=rate,
                    beta1=BETAS[0], beta1_power=tf.pow(BETAS[0], t), beta2=BETAS[1],
                    beta2_power=tf.pow(BETAS[1], t), epsilon=EPSILON,
                )
            )  # fmt: skip
    with tf.control_dependencies(updated):
        tf.group(step.assign_add(1), name=STEP)
    return state
