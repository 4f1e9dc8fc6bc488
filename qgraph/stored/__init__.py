"""The output directory of a quantized network: its files, written and read."""

from qgraph.stored.read import (
    inference_folder,
    load_float,
    load_graph,
    load_network,
    load_samples,
    part,
)

__all__ = [
    "inference_folder",
    "load_float",
    "load_graph",
    "load_network",
    "load_samples",
    "part",
]
