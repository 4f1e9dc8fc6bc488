"""Functions that write an operator as TensorFlow ops, and those that many operators share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from qgraph.frontends.site import Ref
from qgraph.frontends.tflite.translation import Translation

Translator: TypeAlias = Callable[[Translation], Ref]


def renamed(op: str) -> Translator:
    """An operator that equals a TensorFlow op with the same inputs and no attributes."""
    return lambda t: t.emit(op, *t.inputs())


def fused(op: str) -> Translator:
    """An operator that equals a TensorFlow op, and may end with an activation."""
    return lambda t: t.activated(t.emit(op, *t.inputs()))
