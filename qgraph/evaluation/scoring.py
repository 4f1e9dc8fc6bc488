"""How an output is compared with labels: as classes, as yes or no, or as values."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

from qgraph.errors import CalibrationError
from qgraph.evaluation.result import Accuracy, Error, Score
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array

TOP = 5
SUM_TOLERANCE = 1e-3  # largest difference of the sum of a sample's probabilities from 1
MOVES = ("reshape", "squeeze", "identity", "transpose")
SIGMOIDS = ("sigmoid", "hard_sigmoid")


@dataclass(frozen=True)
class Tally:
    """Sums over `count` answers or numbers.

    first   right answers, or squares of errors
    second  answers among the first five, or absolute errors
    """

    first: float = 0.0
    second: float = 0.0
    count: int = 0

    def __add__(self, other: Tally) -> Tally:
        sums = (self.first + other.first, self.second + other.second)
        return Tally(*sums, self.count + other.count)


class Scoring(Protocol):
    """Compares outputs of samples with their labels, and computes a score from the tallies."""

    def tally(self, found: Array, labels: Array) -> Tally:
        """Outputs against labels."""

    def same(self, a: Array, b: Array) -> Tally:
        """The answers on which two networks agree, counted in `first`."""

    def score(self, tally: Tally) -> Score:
        """The score for a tally of all samples."""


@dataclass(frozen=True)
class Classes:
    """The largest of the scores along the last axis is the answer; labels are classes."""

    classes: int

    def tally(self, found: Array, labels: Array) -> Tally:
        scores, wanted = self._rows(found), labels.reshape(-1, 1).astype(np.int64)
        own = np.take_along_axis(scores, wanted, -1)
        later = np.arange(self.classes) >= wanted  # the first of equal scores counts, as in argmax
        # NaN is neither less nor equal: it comes first, so that it is never a right answer.
        place = (~((scores < own) | ((scores == own) & later))).sum(-1)
        return Tally(float((place == 0).sum()), float((place < TOP).sum()), len(place))

    def same(self, a: Array, b: Array) -> Tally:
        equal = self._rows(a).argmax(-1) == self._rows(b).argmax(-1)
        return Tally(float(equal.sum()), 0.0, len(equal))

    def score(self, tally: Tally) -> Accuracy:
        top5 = tally.second / tally.count if self.classes > TOP else None
        return Accuracy(tally.first / tally.count, top5)

    def _rows(self, scores: Array) -> Array:
        return scores.reshape(-1, self.classes)


@dataclass(frozen=True)
class YesOrNo:
    """Each number is a probability, and yes above one half; labels are 0 and 1."""

    def tally(self, found: Array, labels: Array) -> Tally:
        return self.same(found, labels)

    def same(self, a: Array, b: Array) -> Tally:
        equal = (a.ravel() > 0.5) == (b.ravel() > 0.5)
        return Tally(float(equal.sum()), 0.0, len(equal))

    def score(self, tally: Tally) -> Accuracy:
        return Accuracy(tally.first / tally.count, None)


@dataclass(frozen=True)
class Values:
    """Labels are the numbers that outputs should be."""

    def tally(self, found: Array, labels: Array) -> Tally:
        difference = found.astype(np.float64).ravel() - labels.astype(np.float64).ravel()
        squares, sizes = float((difference**2).sum()), float(np.abs(difference).sum())
        return Tally(squares, sizes, len(difference))

    def same(self, a: Array, b: Array) -> Tally:
        return Tally()

    def score(self, tally: Tally) -> Error:
        return Error(float(np.sqrt(tally.first / tally.count)), tally.second / tally.count)


def scoring(
    graph: Graph, output: str, found: Array, samples: int, labels: Array
) -> tuple[Scoring, Array]:
    """The scoring for `output`, and its labels in the form that the scoring takes.

    found: outputs of the float network for `samples` samples. Labels with the shape of the output
    are values, except if each row has the probabilities of classes, or if the output is a sigmoid
    and they are 0 and 1. Labels without the output's last axis are classes. Raises
    CalibrationError.
    """
    if found.ndim == 0 or len(found) % samples:
        raise _wrong(output, f"shape {list(found.shape)}: not one answer for each sample")
    each, last = found.size // samples, found.shape[-1]
    given = prod(labels.shape[1:])
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise _wrong(output, "labels are NaN or infinite")
    if last > 1 and given == each // last:
        return Classes(last), _checked_classes(output, labels, last)
    if given != each:
        raise _wrong(
            output,
            f"has shape {[None, *found.shape[1:]]}, which labels of shape "
            f"{list(labels.shape)} do not fit".replace("None", "?"),
            "give the class of each sample, (samples,), or the output that it should have",
        )
    if last > 1 and labels.shape[-1] == last and _are_probabilities(labels):
        return Classes(last), labels.argmax(-1)
    if _op_behind(graph, output) in SIGMOIDS and bool(np.isin(labels, (0, 1)).all()):
        return YesOrNo(), labels
    return Values(), labels


def _wrong(output: str, message: str, hint: str | None = None) -> CalibrationError:
    return CalibrationError(message, node=f"output `{output}`", hint=hint)


def _checked_classes(output: str, labels: Array, classes: int) -> Array:
    if (labels != np.floor(labels)).any() if labels.dtype.kind == "f" else False:
        raise _wrong(
            output, "labels have fractions, so they are not classes", "give them as integers"
        )
    low, high = labels.min(), labels.max()
    if low < 0 or high >= classes:
        raise _wrong(
            output,
            f"{classes} classes, but labels go from {low:g} to {high:g}",
            f"classes are counted from 0 to {classes - 1}",
        )
    return labels


def _are_probabilities(labels: Array) -> bool:
    sums = labels.astype(np.float64).sum(-1)
    return bool((labels >= 0).all() and (np.abs(sums - 1) < SUM_TOLERANCE).all())


def _op_behind(graph: Graph, output: str) -> str:
    """The op that computes an output, ignoring ops that only move values."""
    node = graph.producer(graph.outputs[output])
    while node.op in MOVES:
        node = graph.producer(node.inputs[0])
    return node.op
