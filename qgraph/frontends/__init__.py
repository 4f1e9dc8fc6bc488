"""Front ends: load a trained network of any supported format as a Graph."""

from __future__ import annotations

from qgraph.frontends.importing import import_graph_def as load_graph_def
from qgraph.frontends.loading import load, load_keras

__all__ = ["load", "load_graph_def", "load_keras"]
