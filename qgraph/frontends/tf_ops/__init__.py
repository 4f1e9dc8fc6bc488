"""Importers of TensorFlow ops, by theme: op name -> function that imports it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.builder import Evaluator, Importer
from qgraph.frontends.tf_ops import (
    control,
    elementwise,
    fused,
    linear,
    movement,
    pooling,
    resampling,
    shapes,
    slicing,
    transposed,
)

IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        op: importer
        for module in (
            control,
            elementwise,
            fused,
            linear,
            movement,
            pooling,
            resampling,
            slicing,
            transposed,
        )
        for op, importer in module.IMPORTERS.items()
    }
)
EVALUATORS: Mapping[str, Evaluator] = shapes.EVALUATORS
