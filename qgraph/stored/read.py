"""Read graphs and networks from an output directory: graphs are text, with arrays in files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from qgraph.archives import read_arrays, reading
from qgraph.backends.network_forms import Network
from qgraph.errors import LoadError
from qgraph.frontends.sources import sources_of
from qgraph.ir.graph import Graph
from qgraph.ir.parsing import parse_graph
from qgraph.ir.types import Array
from qgraph.names import entry_name, from_entry_name
from qgraph.program import lower
from qgraph.quant.profile import load_profile
from qgraph.stored.code_constants import coded_constants, from_codes
from qgraph.stored.float_constants import unpacked
from qgraph.stored.manifest import Manifest, read_manifest

TRAINING, INFERENCE = "training.json", "inference"  # in a directory that a network is trained in


def inference_folder(path: str | Path) -> Path:
    """The directory of the quantized network.

    Args:
        path: An output directory, or a training directory.

    Returns:
        `path` itself, or the `inference/` in a training directory.

    Raises:
        LoadError: A training directory has no inference graph.

    Examples:
        >>> inference_folder("out").name
        'out'
    """
    path = Path(path)
    if not (path / TRAINING).is_file():
        return path
    if not (path / INFERENCE / "manifest.json").is_file():
        raise LoadError(
            "a training directory without an inference graph",
            node=str(path),
            hint=f"after training, write one: qgraph finalize {path}",
        )
    return path / INFERENCE


def load_graph(folder: Path) -> Graph:
    """Load the calibrated graph of an output directory.

    Args:
        folder: The directory.

    Returns:
        The graph, with its quantizers and their exponents.

    Raises:
        LoadError: A file is missing, or was changed or damaged.

    Examples:
        >>> load_graph(Path("out")).facts >= {"calibrated"}
        True
    """
    folder = inference_folder(folder)
    about = read_manifest(folder)
    with reading(folder, "was changed or damaged", "quantize the model again"):
        arrays = read_arrays(folder / "network.npz")
        text = _text(folder, "graph.txt", about)
        constants = part(arrays, "constant")
        constants |= _values_of_codes(folder, about, constants)
        graph = parse_graph(text, constants, sources_of(arrays))
        graph.facts.update(about.established)
        return graph


def _values_of_codes(
    folder: Path, about: Manifest, constants: Mapping[str, Array]
) -> dict[str, Array]:
    """The constants that are stored as codes only, with the values of these; `constants` are the
    others.
    """
    coded = coded_constants(constants, about.tensors)
    names = {f"codes/{entry_name(entry.name)}" for entry in coded.values()}
    codes = part(read_arrays(folder / "tensors.npz", wanted=names.__contains__), "codes")
    return from_codes(coded, codes)


def _text(folder: Path, name: str, about: Manifest) -> str:
    """A text file of an output directory. Raises LoadError if its hash is not in the manifest."""
    data = (folder / name).read_bytes()
    if hashlib.sha256(data).hexdigest() != about.files.get(name):
        raise LoadError("was changed or damaged since it was written", node=str(folder / name))
    return data.decode("utf-8")


def load_float(folder: Path) -> Graph:
    """Load the float network that an output directory was made from.

    Args:
        folder: The directory.

    Returns:
        The graph.

    Raises:
        LoadError: A file is missing, or was changed or damaged.

    Examples:
        >>> load_float(Path("out")).outputs.keys() == load_graph(Path("out")).outputs.keys()
        True
    """
    folder = inference_folder(folder)
    about = read_manifest(folder)
    if not (folder / "float.txt").is_file():
        raise LoadError(
            "the float network is missing, so there is nothing to compare with",
            node=str(folder),
            hint="an earlier version wrote it: quantize the model again",
        )
    with reading(folder, "was changed or damaged", "quantize the model again"):
        shared, own = (read_arrays(folder / name) for name in ("network.npz", "float.npz"))
        of_codes = _values_of_codes(folder, about, part(shared, "constant"))
        spelled = {entry_name(name): array for name, array in of_codes.items()}
        arrays = {**shared, **unpacked(own, spelled)}
        text = _text(folder, "float.txt", about)
        return parse_graph(text, part(arrays, "constant"), sources_of(arrays))


def load_network(folder: str | Path) -> Network:
    """Load the network of an output directory, with its integer program.

    Sizes that the graph leaves open are those of the calibration sample.

    Args:
        folder: The directory.

    Returns:
        The network.

    Raises:
        LoadError: A file is missing, or was changed or damaged.
        UnsupportedError: The network has no integer program.

    Examples:
        >>> load_network("out").program.steps[0].op
        'conv2d'
    """
    folder = inference_folder(folder)
    graph = load_graph(folder)
    with reading(folder, "was changed or damaged", "quantize the model again"):
        sample = part(_of_kind(folder / "tensors.npz", "input"), "input")
        shapes = {
            name: (graph.types[name].shape or (None,))[:1] + array.shape[1:]
            for name, array in sample.items()
            if array.ndim
        }
        profile = load_profile(folder / "profile.yaml")
    return Network(graph, lower(graph, shapes), profile, sample, load_samples(folder))


def load_samples(folder: str | Path) -> dict[str, Array]:
    """Load the calibration samples that an output directory contains.

    Args:
        folder: The directory.

    Returns:
        A few samples, [samples, ...], by input name; empty if there were none.

    Raises:
        LoadError: A file is missing, or was changed or damaged.

    Examples:
        >>> len(load_samples("out"))
        1
    """
    folder = inference_folder(folder)
    with reading(folder, "was changed or damaged", "quantize the model again"):
        return part(_of_kind(folder / "network.npz", "sample"), "sample")


def _of_kind(file: Path, kind: str) -> dict[str, Array]:
    return read_arrays(file, wanted=lambda name: name.startswith(f"{kind}/"))


def part(arrays: Mapping[str, Array], kind: str) -> dict[str, Array]:
    """The arrays of one kind in a file of an output directory.

    Args:
        arrays: Arrays by their names in the file, `kind/name`.
        kind: The kind, such as `constant`.

    Returns:
        The arrays by name.

    Examples:
        >>> part({"constant/w": [1], "sample/x": [2]}, "constant")
        {'w': [1]}
    """
    return {
        from_entry_name(key.removeprefix(f"{kind}/")): array
        for key, array in arrays.items()
        if key.startswith(f"{kind}/")
    }
