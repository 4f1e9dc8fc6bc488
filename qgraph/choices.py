"""Options with a few possible values: parsers, checks, messages and help are derived from these.

Quick to import, so that the command line can have them before anything else.
"""

from __future__ import annotations

from typing import TypeVar

from qgraph.enums import StrEnum
from qgraph.errors import UsageError
from qgraph.words import alternatives


class Mode(StrEnum):
    """How weights and thresholds are found."""

    STATIC = "static"  # without training
    RETRAIN = "retrain"  # by training further


class Effort(StrEnum):
    """How much static mode tries to keep a network's accuracy, in rising order."""

    PLAIN = "plain"
    FAST = "fast"
    DEFAULT = "default"
    THOROUGH = "thorough"


class CalibrationMethod(StrEnum):
    """How thresholds of activations are chosen (`qgraph.quant.thresholds`)."""

    KL_J = "kl_j"
    MAX = "max"
    PERCENTILE = "percentile"
    MSE = "mse"
    OUTPUT = "output"


class WeightMethod(StrEnum):
    """How thresholds of weights are chosen (`qgraph.quant.constant_scales`)."""

    MAX = "max"
    DEVIATIONS = "3sd"


class Equalization(StrEnum):
    """How ranges of channels are equalized between layers (`qgraph.transforms`)."""

    OFF = ""
    WEIGHTS = "weights"
    BIASES = "biases"  # counts biases into the ranges


class ExportFormat(StrEnum):
    """The forms that a network can be exported to (`qgraph.exports`)."""

    ONNX_QDQ = "onnx-qdq"
    ONNX_INTEGER = "onnx-integer"
    QONNX = "qonnx"
    C = "c"
    VECTORS = "vectors"
    ENGINE = "engine"
    TENSORFLOW = "tensorflow"


class Learning(StrEnum):
    """Parts of a network that training changes."""

    ALL = "all"
    WEIGHTS = "weights"
    THRESHOLDS = "thresholds"


class LossKind(StrEnum):
    """Losses of training (`qgraph.train.losses`)."""

    LABELS = "labels"
    TEACHER = "teacher"
    MSE = "mse"


E = TypeVar("E", bound=StrEnum)


def optional(kind: type[E], text: str | None, option: str) -> E | None:
    """As `chosen`; None stays."""
    return None if text is None else chosen(kind, text, option)


def chosen(kind: type[E], text: str, option: str) -> E:
    """The member of an enumeration that `text` names. Raises UsageError that names the option."""
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"unknown {option} `{text}`; choose {alternatives(kind)}") from None
