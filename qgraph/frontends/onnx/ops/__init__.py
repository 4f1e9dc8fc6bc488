"""Importers of ONNX ops, by theme: op name -> function that imports it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.onnx.builder import Evaluator, Importer
from qgraph.frontends.onnx.ops import (
    activations,
    attention,
    control,
    elementwise,
    indexing,
    linear,
    movement,
    normalization,
    pooling,
    recurrent,
    reductions,
    repetition,
    resampling,
    shapes,
    slicing,
    structure,
    transposed,
)

THEMES = (
    activations,
    attention,
    control,
    elementwise,
    indexing,
    linear,
    movement,
    normalization,
    pooling,
    recurrent,
    reductions,
    repetition,
    resampling,
    slicing,
    structure,
    transposed,
)
# An importer of a theme takes precedence over the names in definitions.
IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        **elementwise.NAMED,
        **{op: importer for theme in THEMES for op, importer in theme.IMPORTERS.items()},
    }
)
EVALUATORS: Mapping[str, Evaluator] = shapes.EVALUATORS
