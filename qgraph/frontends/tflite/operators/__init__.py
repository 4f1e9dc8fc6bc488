"""Operators of `.tflite` files, by theme: name -> function that writes it as TensorFlow ops."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.tflite.operators import (
    activations,
    arithmetic,
    codes,
    control,
    images,
    layers,
    moves,
    recurrent,
    reductions,
    streaming,
)
from qgraph.frontends.tflite.operators.translator import Translator

THEMES = (
    activations, arithmetic, codes, control, images, layers, moves, recurrent, reductions,
    streaming,
)  # fmt: skip
OPERATORS: Mapping[str, Translator] = MappingProxyType(
    {name: write for theme in THEMES for name, write in theme.OPERATORS.items()}
)
