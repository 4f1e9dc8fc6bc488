"""Losses and metrics of training."""

from __future__ import annotations

from dataclasses import dataclass

from qgraph.choices import LossKind, chosen
from qgraph.errors import UsageError
from qgraph.foreign import Tensor
from qgraph.ir.graph import Graph
from qgraph.ir.types import Shape
from qgraph.static.agreement import decisions


@dataclass(frozen=True)
class Loss:
    """A loss on one value of the quantized graph, with labels or a value of the float graph.

    `labels`: softmax cross entropy on logits. `teacher`: KL divergence of the float network's
    softmax from the quantized one's. `mse`: mean squared difference from the float output.
    """

    kind: LossKind
    value: str
    teacher: str
    classes: int | None

    def __call__(self, found: Tensor, targets: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of a batch. found, taught: [n, ...]; labels: as in `LabelledBatch`."""
        import tensorflow as tf

        if self.kind == LossKind.MSE:
            return tf.reduce_mean(tf.math.squared_difference(found, targets))
        logits = tf.nn.log_softmax(self._rows(found))
        teaches = self.kind == LossKind.TEACHER
        wanted = tf.nn.softmax(self._rows(targets)) if teaches else self._wanted(labels)
        # Minus the entropy of the targets, which is the minimum of a cross entropy.
        entropy = -tf.reduce_sum(tf.math.xlogy(wanted, wanted), -1)
        return tf.reduce_mean(-tf.reduce_sum(wanted * logits, -1) - entropy)

    def right(self, found: Tensor, targets: Tensor, labels: Tensor) -> Tensor:
        """The number of samples with the class of the labels or, without labels, of the teacher."""
        import tensorflow as tf

        if self.classes is None:
            return tf.constant(0.0)
        wanted = self._rows(targets) if self.kind != LossKind.LABELS else self._wanted(labels)
        same = tf.equal(tf.argmax(self._rows(found), -1), tf.argmax(wanted, -1))
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
    output: the public name of the output that is trained; the only one, if there is one.
    Raises UsageError.
    """
    names = list(graph.outputs)
    if output is None and len(names) > 1:
        raise UsageError(
            f"the network has {len(names)} outputs: {', '.join(names)}",
            hint="choose one: --output NAME",
        )
    if output not in (None, *names):
        raise UsageError(f"unknown output `{output}`", hint=f"outputs are {', '.join(names)}")
    at = names.index(output) if output else 0
    value, teacher = decisions(graph)[at], decisions(floating)[at]
    shape = graph.types[value].shape or ()
    classes = classes_of(shape)
    if kind is None:
        unlabelled = LossKind.TEACHER if classes else LossKind.MSE
        kind = LossKind.LABELS if labelled else unlabelled
    kind = chosen(LossKind, kind, "loss")
    if kind == LossKind.LABELS and not labelled:
        raise UsageError("the data has no labels", hint="an array called `labels`, or (x, y)")
    if kind != LossKind.MSE and classes is None:
        raise UsageError(
            f"`{value}` of shape {list(shape)} is not a vector of classes", hint="use --loss mse"
        )
    if kind == LossKind.MSE:
        outputs = list(graph.outputs.values()), list(floating.outputs.values())
        value, teacher, classes = outputs[0][at], outputs[1][at], None
    return Loss(kind, value, teacher, classes)


def classes_of(shape: Shape) -> int | None:
    """Number of classes of a value of this shape: the last size, if others are 1."""
    if len(shape) < 2 or shape[-1] == 1 or any(size != 1 for size in shape[1:-1]):
        return None
    return shape[-1]
