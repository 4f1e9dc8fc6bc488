"""Activations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.operators.translator import Translator, renamed
from qgraph.frontends.tflite.translation import Translation


def _softmax(t: Translation) -> Ref:
    beta, x = t.option("Beta"), t.input(0)
    if beta != 1:
        x = t.emit("Mul", x, t.scalar(beta, "beta"))
    return t.emit("Softmax", x)


def _leaky_relu(t: Translation) -> Ref:
    return t.emit("LeakyRelu", t.input(0), alpha=t.option("Alpha"))


def _gelu(t: Translation) -> Ref:
    return t.emit("Gelu", t.input(0), approximate=bool(t.optional("Approximate", False)))


OPERATORS: Mapping[str, Translator] = MappingProxyType(
    {
        "RELU": renamed("Relu"),
        "RELU6": renamed("Relu6"),
        "RELU_N1_TO_1": renamed("ReluN1To1"),
        "RELU_0_TO_1": renamed("Relu0To1"),
        "ELU": renamed("Elu"),
        "LEAKY_RELU": _leaky_relu,
        "PRELU": renamed("PRelu"),
        "HARD_SWISH": renamed("HardSwish"),
        "GELU": _gelu,
        "LOGISTIC": renamed("Sigmoid"),
        "TANH": renamed("Tanh"),
        "SOFTMAX": _softmax,
        "LOG_SOFTMAX": renamed("LogSoftmax"),
    }
)
