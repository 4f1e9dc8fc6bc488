"""Front ends: load a trained network of any supported format as a Graph."""

from __future__ import annotations

from qgraph.frontends.loading import load, load_keras
from qgraph.frontends.tf.importing import import_graph_def as load_graph_def

__all__ = ["load", "load_graph_def", "load_keras"]
