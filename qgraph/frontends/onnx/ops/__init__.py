"""Importers of ONNX ops, by theme: op name -> function that imports it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.onnx.builder import Evaluator, Importer
from qgraph.frontends.onnx.ops import (
    activations,
    elementwise,
    linear,
    movement,
    normalization,
    pooling,
    reductions,
    repetition,
    resampling,
    shapes,
    slicing,
    structure,
    transposed,
)

IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        op: importer
        for module in (
            activations,
            elementwise,
            linear,
            movement,
            normalization,
            pooling,
            reductions,
            repetition,
            resampling,
            slicing,
            structure,
            transposed,
        )
        for op, importer in module.IMPORTERS.items()
    }
)
EVALUATORS: Mapping[str, Evaluator] = shapes.EVALUATORS
