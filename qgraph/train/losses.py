"""Losses and metrics of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qgraph.choices import LossKind, chosen
from qgraph.errors import UsageError
from qgraph.foreign import Tensor
from qgraph.ir.graph import Graph
from qgraph.ir.types import Shape
from qgraph.static.agreement import decisions
from qgraph.train.blocks import BlockEnd, block_ends, relative_error

Values = Mapping[str, Tensor]  # by name


@dataclass(frozen=True)
class Loss:
    """A loss on values of the quantized graph, with labels or values of the float graph.

    `labels`: softmax cross entropy on logits. `teacher`: KL divergence of the float network's
    softmax from the quantized one's. `mse`: mean squared difference from the float output.
    `blocks`: relative errors of the outputs of all blocks and of the network, and `teacher` where
    its output is classes.

    value: the output in the quantized graph, or its logits. teacher: the same in the float graph.
    ends: what `blocks` compares.
    """

    kind: LossKind
    value: str
    teacher: str
    classes: int | None
    ends: tuple[BlockEnd, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the quantized graph that the loss needs."""
        return (self.value, *(end.value for end in self.ends))

    def __call__(self, found: Values, targets: Values, labels: Tensor) -> Tensor:
        """The mean loss of a batch.

        found: values of the quantized graph, [n, ...]. targets: those of the float graph; unused by
        `labels`. labels: as in `LabelledBatch`.
        """
        import tensorflow as tf

        if self.kind == LossKind.MSE:
            difference = tf.math.squared_difference(found[self.value], targets[self.teacher])
            return tf.reduce_mean(difference)
        errors = [relative_error(found[end.value], targets[end.teacher]) for end in self.ends]
        if self.classes is None:
            return tf.add_n(errors)
        return tf.add_n([*errors, self._divergence(found, targets, labels)])

    def _divergence(self, found: Values, targets: Values, labels: Tensor) -> Tensor:
        """The KL divergence from the labels or from the classes of the float network."""
        import tensorflow as tf

        logits = tf.nn.log_softmax(self._rows(found[self.value]))
        if self.kind == LossKind.LABELS:
            wanted = self._wanted(labels)
        else:
            wanted = tf.nn.softmax(self._rows(targets[self.teacher]))
        # Minus the entropy of the targets, which is the minimum of a cross entropy.
        entropy = -tf.reduce_sum(tf.math.xlogy(wanted, wanted), -1)
        return tf.reduce_mean(-tf.reduce_sum(wanted * logits, -1) - entropy)

    def right(self, found: Values, targets: Values, labels: Tensor) -> Tensor:
        """The number of samples with the class of the labels or, without labels, of the teacher."""
        import tensorflow as tf

        if self.classes is None:
            return tf.constant(0.0)
        if self.kind == LossKind.LABELS:
            wanted = self._wanted(labels)
        else:
            wanted = self._rows(targets[self.teacher])
        same = tf.equal(tf.argmax(self._rows(found[self.value]), -1), tf.argmax(wanted, -1))
        return tf.reduce_sum(tf.cast(same, tf.float32))

    def _rows(self, scores: Tensor) -> Tensor:
        """Scores as [n, classes]; a 1x1 convolution gives [n, 1, 1, classes]."""
        import tensorflow as tf

        return tf.reshape(scores, [-1, self.classes])

    def _wanted(self, labels: Tensor) -> Tensor:
        import tensorflow as tf

        if labels.dtype.is_floating:
            return tf.cast(labels, tf.float32)
        return tf.one_hot(tf.reshape(labels, [-1]), self.classes, dtype=tf.float32)


def loss_for(
    graph: Graph,
    floating: Graph,
    labelled: bool,
    kind: LossKind | None = None,
    output: str | None = None,
) -> Loss:
    """The loss for a quantized graph and its float twin.

    kind: `labels` where there are labels, else `teacher` for an output of classes, else `mse`.
    output: the public name of the output that is trained; None for the only one or, with `blocks`,
    for all.
    Raises UsageError.
    """
    if kind is not None:
        kind = chosen(LossKind, kind, "loss")
    at = _trained_outputs(graph, output, kind)
    values, teachers = decisions(graph), decisions(floating)
    value, teacher = values[at[0]], teachers[at[0]]
    shape = graph.types[value].shape or ()
    classes = classes_of(shape)
    if kind is None:
        unlabelled = LossKind.TEACHER if classes else LossKind.MSE
        kind = LossKind.LABELS if labelled else unlabelled
    if kind == LossKind.LABELS and not labelled:
        raise UsageError("the data has no labels", hint="an array called `labels`, or (x, y)")
    if kind == LossKind.BLOCKS:
        outputs = tuple(BlockEnd(values[i], teachers[i]) for i in at)
        ends = (*block_ends(graph, floating), *outputs)
        return Loss(kind, value, teacher, classes if len(at) == 1 else None, ends)
    if kind != LossKind.MSE and classes is None:
        raise UsageError(
            f"`{value}` of shape {list(shape)} is not a vector of classes", hint="use --loss mse"
        )
    if kind == LossKind.MSE:
        outputs_of = list(graph.outputs.values()), list(floating.outputs.values())
        value, teacher, classes = outputs_of[0][at[0]], outputs_of[1][at[0]], None
    return Loss(kind, value, teacher, classes)


def _trained_outputs(graph: Graph, output: str | None, kind: LossKind | None) -> list[int]:
    """Indices of the outputs that a loss is on. Raises UsageError."""
    names = list(graph.outputs)
    if output is not None:
        if output not in names:
            raise UsageError(f"unknown output `{output}`", hint=f"outputs are {', '.join(names)}")
        return [names.index(output)]
    if len(names) > 1 and kind != LossKind.BLOCKS:
        raise UsageError(
            f"the network has {len(names)} outputs: {', '.join(names)}",
            hint="choose one: --output NAME, or train all of them: --loss blocks",
        )
    return list(range(len(names)))


def classes_of(shape: Shape) -> int | None:
    """Number of classes of a value of this shape: the last size, if others are 1."""
    if len(shape) < 2 or shape[-1] == 1 or any(size != 1 for size in shape[1:-1]):
        return None
    return shape[-1]
