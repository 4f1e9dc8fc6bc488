"""Options with a few possible values: parsers, checks, messages and help are derived from these.

Quick to import, so that the command line can have them before anything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from qgraph.enums import StrEnum
from qgraph.errors import UsageError
from qgraph.words import alternatives

DEFAULT_PROFILE = "graffitist-int8"


class Mode(StrEnum):
    """How weights and thresholds are found."""

    STATIC = "static"  # without training
    RETRAIN = "retrain"  # by training further


class Effort(StrEnum):
    """How much static mode tries to keep a network's accuracy, in ascending order."""

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
    PERCENTILE = "percentile"


class Equalization(StrEnum):
    """How ranges of channels are equalized between layers (`qgraph.transforms`)."""

    OFF = ""
    NOISE = "noise"  # by the noise of activations and weights, from batch norms
    MEASURED = "measured"  # the same, with the largest values of samples as ranges
    WEIGHTS = "weights"
    BIASES = "biases"  # also counts biases in the ranges

    @property
    def by_noise(self) -> bool:
        """Whether factors minimize noise instead of making ranges equal."""
        return self in (Equalization.NOISE, Equalization.MEASURED)


class ExportFormat(StrEnum):
    """The forms that a network can be exported to (`qgraph.exports`)."""

    ONNX_QDQ = "onnx-qdq"
    ONNX_INTEGER = "onnx-integer"
    ONNX_QOPERATOR = "onnx-qoperator"
    ONNX_XINT8 = "onnx-xint8"
    QONNX = "qonnx"
    TFLITE = "tflite"
    C = "c"
    TOSA = "tosa"
    VECTORS = "vectors"
    ENGINE = "engine"
    TENSORFLOW = "tensorflow"


class CodeLayout(StrEnum):
    """Layouts of folders around a network in C (`qgraph.backends.c.layouts`)."""

    ARDUINO = "arduino"
    ZEPHYR = "zephyr"


class Accelerator(StrEnum):
    """Arm Ethos-U accelerators that Vela compiles for (`qgraph.backends.vela`)."""

    U55_32 = "ethos-u55-32"
    U55_64 = "ethos-u55-64"
    U55_128 = "ethos-u55-128"
    U55_256 = "ethos-u55-256"
    U65_256 = "ethos-u65-256"
    U65_512 = "ethos-u65-512"
    U85_128 = "ethos-u85-128"
    U85_256 = "ethos-u85-256"
    U85_512 = "ethos-u85-512"
    U85_1024 = "ethos-u85-1024"
    U85_2048 = "ethos-u85-2048"


class Learning(StrEnum):
    """Parts of a network that training changes."""

    ALL = "all"
    WEIGHTS = "weights"
    THRESHOLDS = "thresholds"


class Level(StrEnum):
    """Instruction sets of native kernels (`qgraph.backends.engine`).

    Those of one kind of CPU are in ascending order.
    """

    AUTO = "auto"  # the best of this machine
    PLAIN = "plain"
    AVX2 = "avx2"
    AVX512VNNI = "avx512vnni"
    AMX = "amx"
    NEON = "neon"
    NEON_DOTPROD = "neon-dotprod"


class HeadKind(StrEnum):
    """How the outputs of a policy become actions (`qgraph.rl.head`)."""

    ARGMAX = "argmax"
    CATEGORICAL = "categorical"
    CLIP = "clip"
    SCALE = "scale"
    GAUSSIAN = "gaussian"
    SQUASHED_GAUSSIAN = "squashed_gaussian"
    MULTI_CATEGORICAL = "multi_categorical"
    BERNOULLI = "bernoulli"


class PackedForm(StrEnum):
    """The forms that a policy can be packed in (`qgraph.rl.policy.build`)."""

    DYNAMIC = "dynamic"  # activations get a range in each step
    STATIC = "static"  # an integer program, calibrated


class QuantizerForm(StrEnum):
    """Implementations of the trainable quantizer (`qgraph.train.quantizer`)."""

    AUTO = "auto"  # fused where its ops load, else native
    FUSED = "fused"
    NATIVE = "native"  # TensorFlow's own ops


class TrainingGraphForm(StrEnum):
    """Forms of a training graph that trains without qgraph."""

    STOCK = "stock"  # TensorFlow's own ops
    LIBRARY = "library"  # the fused ops, for `tf.load_op_library`
    METAGRAPH = "metagraph"  # TensorFlow's own ops, in MetaGraphs with a checkpoint


class LearnerDevice(StrEnum):
    """Devices on which the learner of a policy computes."""

    CPU = "cpu"
    GPU = "gpu"


class CellKind(StrEnum):
    """Recurrent cells of policies."""

    LSTM = "lstm"
    GRU = "gru"


class LossKind(StrEnum):
    """Losses of training (`qgraph.train.losses`)."""

    LABELS = "labels"
    TEACHER = "teacher"
    MSE = "mse"
    BLOCKS = "blocks"


W = TypeVar("W", bound=str)


def optional(words: Iterable[W], text: str | None, option: str) -> W | None:
    """Like `chosen`, but None is returned as it is."""
    return None if text is None else chosen(words, text, option)


def chosen(words: Iterable[W], text: str, option: str) -> W:
    """The member of an enumeration, or the word, that `text` names.

    Raises UsageError that names the option and lists the words.
    """
    known = list(words)
    if text not in known:
        raise UsageError(f"unknown {option} `{text}`; choose {alternatives(known)}")
    return known[known.index(text)]
