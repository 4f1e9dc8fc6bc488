"""Graphs in files: text beside arrays. What an output directory holds, read back."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qgraph.artifacts import read_manifest
from qgraph.backends.forms import Network
from qgraph.errors import GraphError, LoadError, TextError
from qgraph.ir.graph import Graph
from qgraph.ir.text import parse_graph
from qgraph.ir.types import Array
from qgraph.names import from_entry_name
from qgraph.program import lower
from qgraph.quant.profile import load_profile


def load_graph(folder: Path) -> Graph:
    """The calibrated graph of an output directory. Raises LoadError."""
    about = read_manifest(folder)
    try:
        text = (folder / "graph.txt").read_text("utf-8")
        graph = parse_graph(text, part(read_arrays(folder / "network.npz"), "constant"))
        graph.facts.update(about["established"])
    except (OSError, ValueError, KeyError, TypeError, GraphError, TextError) as error:
        raise LoadError(
            f"is not as it was written: {error}", node=str(folder), hint="quantize the model again"
        ) from None
    return graph


def load_network(folder: str | Path) -> Network:
    """What an output directory holds, with its integer program.

    Sizes that the graph leaves open are those of the calibration sample. Raises LoadError, and
    UnsupportedError where the network has no integer program.
    """
    folder = Path(folder)
    graph = load_graph(folder)
    sample = part(read_arrays(folder / "tensors.npz"), "input")
    shapes = {
        name: (graph.types[name].shape or (None,))[:1] + array.shape[1:]
        for name, array in sample.items()
        if array.ndim
    }
    return Network(
        graph,
        lower(graph, shapes),
        load_profile(folder / "profile.yaml"),
        sample,
        part(read_arrays(folder / "network.npz"), "sample"),
    )


def read_arrays(path: Path) -> dict[str, Array]:
    """Every array of an `.npz`. Raises LoadError."""
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise LoadError(f"cannot be read: {error}", node=str(path)) from None


def part(arrays: Mapping[str, Array], kind: str) -> dict[str, Array]:
    """The arrays `kind/<name>` of what `write_npz` wrote, by name."""
    return {
        from_entry_name(key.removeprefix(f"{kind}/")): array
        for key, array in arrays.items()
        if key.startswith(f"{kind}/")
    }
