"""Tables of the ops that are read from TensorFlow and ONNX, made from their importers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType

from qgraph.frontends import tf_ops
from qgraph.frontends.onnx import ops as onnx_ops
from qgraph.frontends.onnx.node import INITIALIZER
from qgraph.quant.key_tables import markdown_table


def table(themes: Iterable[ModuleType], importers: Iterable[str], evaluators: Iterable[str]) -> str:
    """A row for each theme, with the first sentence of its docstring.

    importers: names of all ops that are read. Those of no theme are in a row of their own.
    evaluators: names of ops that are computed when a model is loaded.
    """
    rows, seen = [], set()
    for theme in themes:
        sentence = (theme.__doc__ or "").splitlines()[0].rstrip(".")
        rows.append((sentence[0].lower() + sentence[1:], _code(theme.IMPORTERS)))
        seen |= set(theme.IMPORTERS)
    rows.append(("functions of each element, one op for each", _code(set(importers) - seen)))
    rows.append(("ops on shapes and constants alone", _code(set(evaluators) - set(importers))))
    return markdown_table(("kind", "ops"), rows)


def _code(names: Iterable[str]) -> str:
    """Names of ops, without those that qgraph itself puts in place of others."""
    ops = (name for name in names if name != INITIALIZER and "." not in name)
    return ", ".join(f"`{name}`" for name in sorted(ops, key=str.lower))


TABLES: Mapping[str, Callable[[], str]] = {
    "ops of ONNX": lambda: table(onnx_ops.THEMES, onnx_ops.IMPORTERS, onnx_ops.EVALUATORS),
    "ops of TensorFlow": lambda: table(tf_ops.THEMES, tf_ops.IMPORTERS, tf_ops.EVALUATORS),
}
