"""Importers of TensorFlow ops, by theme: op name -> function that imports it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.tf.builder import Evaluator, Importer
from qgraph.frontends.tf.ops import (
    control,
    elementwise,
    fake_quantizers,
    fused,
    linear,
    loops,
    movement,
    picking,
    pooling,
    resampling,
    shapes,
    slicing,
    transposed,
    volumes,
)

THEMES = (
    control,
    elementwise,
    fake_quantizers,
    fused,
    linear,
    loops,
    movement,
    picking,
    pooling,
    resampling,
    slicing,
    transposed,
    volumes,
)
# An importer of a theme takes precedence over the names in definitions.
IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        **elementwise.NAMED,
        **{op: importer for theme in THEMES for op, importer in theme.IMPORTERS.items()},
    }
)
EVALUATORS: Mapping[str, Evaluator] = shapes.EVALUATORS
