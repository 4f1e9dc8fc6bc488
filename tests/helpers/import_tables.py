"""Tables of the ops that are read from each format, made from their importers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType

from qgraph.frontends.onnx import ops as onnx_ops
from qgraph.frontends.onnx.node import INITIALIZER
from qgraph.frontends.tf import ops as tf_ops
from qgraph.frontends.tflite import operators as tflite_operators
from qgraph.quant.key_tables import markdown_table


def table_of_themes(
    themes: Iterable[ModuleType], ops_of: Callable[[ModuleType], Iterable[str]]
) -> list[tuple[str, str]]:
    """A row for each theme, with the first sentence of its docstring."""
    rows = []
    for theme in themes:
        sentence = (theme.__doc__ or "").splitlines()[0].rstrip(".")
        rows.append((sentence[0].lower() + sentence[1:], _code(ops_of(theme))))
    return rows


def table(themes: Sequence[ModuleType], importers: Iterable[str], evaluators: Iterable[str]) -> str:
    """A row for each theme of importers.

    importers: names of all ops that are read. Those of no theme are in a row of their own.
    evaluators: names of ops that are computed when a model is loaded.
    """
    rows = table_of_themes(themes, lambda theme: theme.IMPORTERS)
    seen = {op for theme in themes for op in theme.IMPORTERS}
    rows.append(("functions of each element, one op for each", _code(set(importers) - seen)))
    rows.append(("ops on shapes and constants alone", _code(set(evaluators) - set(importers))))
    return markdown_table(("kind", "ops"), rows)


def operators_table() -> str:
    """The operators of TensorFlow Lite, by theme."""
    rows = table_of_themes(tflite_operators.THEMES, lambda theme: theme.OPERATORS)
    return markdown_table(("kind", "operators"), rows)


def _code(names: Iterable[str]) -> str:
    """Names of ops, without those that qgraph itself puts in place of others."""
    ops = (name for name in names if name != INITIALIZER and "." not in name)
    return ", ".join(f"`{name}`" for name in sorted(ops, key=str.lower))


TABLES: Mapping[str, Callable[[], str]] = {
    "ops of ONNX": lambda: table(onnx_ops.THEMES, onnx_ops.IMPORTERS, onnx_ops.EVALUATORS),
    "ops of TensorFlow": lambda: table(tf_ops.THEMES, tf_ops.IMPORTERS, tf_ops.EVALUATORS),
    "operators of TensorFlow Lite": operators_table,
}
