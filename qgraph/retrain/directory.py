"""Write and read the directory that a network is trained in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from qgraph.archives import read_arrays, read_json, reading
from qgraph.choices import CalibrationMethod
from qgraph.errors import LoadError, UnsupportedError
from qgraph.files import Reserved, reserved, sha256_of
from qgraph.frontends.sources import source_arrays, sources_of
from qgraph.frontends.tf.opaque import TFSource
from qgraph.ir.graph import Graph
from qgraph.ir.ops.structure import OpaqueAttrs, Source
from qgraph.ir.parsing import parse_graph
from qgraph.ir.printing import print_graph
from qgraph.ir.reading import kind_of
from qgraph.ir.types import Array
from qgraph.npz import write_npz
from qgraph.quant.profile import Profile, dump_profile, load_profile
from qgraph.quantized import Quantized
from qgraph.quiet import quiet_tensorflow
from qgraph.records import from_json, to_json, to_object
from qgraph.rewrite.trace import Trace, TraceRecord
from qgraph.static.facts import Facts
from qgraph.stored import part
from qgraph.stored.read import INFERENCE, TRAINING
from qgraph.stored.write import constants, versions
from qgraph.train.folded import Norm, norms_of
from qgraph.train.loop import CHECKPOINTS, network_of
from qgraph.train.model import TrainingGraph
from qgraph.train.state import scales_of

FORMAT = 2  # of the directory; stored in training.json
FILES = MappingProxyType(
    {
        TRAINING: "versions, names, and results of calibration",
        "graph.txt": "the quantized graph as text",
        "float.txt": "the float graph, the teacher of training without labels",
        "arrays.npz": "weights, batch norms and samples of both",
        "profile.yaml": "the target profile",
        "rewrites.json": "rewrites and refusals of each pass, with reasons",
    }
)
# Files whose hashes are stored in training.json; arrays.npz has checksums of its own.
TEXTS = ("graph.txt", "float.txt", "profile.yaml", "rewrites.json")
# Added by later commands. A run that replaces the files above removes these too.
TRAINING_GRAPH = "training_graph"
ADDED = (CHECKPOINTS, INFERENCE, TRAINING_GRAPH)
NORM_NAMES = ("layer", "side", "weights", "bias")
NORM_ARRAYS = ("mean", "variance", "epsilon")


@dataclass(frozen=True)
class TrainingDirectory:
    """Content of a training directory.

    Attributes:
        graph: The quantized, calibrated graph.
        floating: The float graph, the teacher of training without labels.
        norms: Batch norms that were folded into the weights of `graph`.
        profile: The target profile.
        method: Method that chose the thresholds of activations.
        trace: The rewrites and refusals of each pass, with reasons.
        sample: One batch of calibration inputs.
        measured_samples: Calibration inputs that noise is measured on.
        facts: Choices, trials and warnings.

    Examples:
        >>> found = qgraph.retrain.load("tuned")
        >>> found.profile.name
        'graffitist-int8'
    """

    graph: Graph
    floating: Graph
    norms: tuple[Norm, ...]
    profile: Profile
    method: CalibrationMethod
    trace: Trace
    sample: Mapping[str, Array]
    measured_samples: Mapping[str, Array]
    facts: Facts

    def model(self) -> TrainingGraph:
        """Create a trainable graph, with variables from calibration.

        Returns:
            A graph that computes as in training.

        Examples:
            >>> len(qgraph.retrain.load("tuned").model().thresholds)
            1
        """
        return TrainingGraph(self.graph, self.norms)


def reserve(path: Path, *, force: bool = False) -> AbstractContextManager[Reserved]:
    """Reserve a path for `write`. `force` lets it replace an earlier run, also its checkpoints.

    Raises OutputError if the path contains other files, or another run uses it.
    """
    return reserved(path, (*FILES, *ADDED), force=force)


def save(result: Quantized, path: str | Path, *, force: bool = False) -> Path:
    """Write a training directory, completely or not at all.

    Args:
        result: Result of `qgraph.quantize`, best with `mode="retrain"`.
        path: A directory, new or empty.
        force: Whether to replace the files of an earlier run, also checkpoints.

    Returns:
        The path.

    Raises:
        UnsupportedError: The network cannot be trained; the error names the op.
        OutputError: The directory contains other files, is used by another run, or cannot be
            written.

    Examples:
        >>> result = qgraph.quantize("model.pb", "calib.npz", mode="retrain")
        >>> print(qgraph.retrain.save(result, "again"))
        again
    """
    path = Path(path)
    check_trainable(result.graph)
    with reserve(path, force=force) as place:
        write(result, place)
    return path


@quiet_tensorflow()
def write(result: Quantized, place: Reserved) -> None:
    """Write a training directory, completely or not at all.

    Raises UnsupportedError for a network that cannot be trained, OutputError.
    """
    check_trainable(result.graph)
    norms = norms_of(result.floating)
    arrays: dict[str, Array] = {
        **constants("constant", result.graph),
        **constants("float", result.floating),
        **source_arrays(result.floating),
        **source_arrays(result.graph),
        **{f"sample/{name}": array for name, array in result.sample.items()},
        **{f"measured/{name}": array for name, array in result.measured_samples.items()},
    }
    for i, norm in enumerate(norms):
        arrays.update({f"norm/{i}/{part}": getattr(norm, part) for part in NORM_ARRAYS})
    about: dict[str, object] = {
        "format": FORMAT,
        "versions": versions(),
        "network": network_of(result.graph),
        "method": result.calibration.method,
        "established": sorted(result.graph.facts),
        "norms": [{name: getattr(n, name) for name in NORM_NAMES} for n in norms],
        "facts": to_object(replace(result.facts, warnings=_lasting_warnings(result))),
    }
    with place.written() as draft:
        (draft / "graph.txt").write_text(print_graph(result.graph), "utf-8")
        (draft / "float.txt").write_text(print_graph(result.floating), "utf-8")
        (draft / "profile.yaml").write_text(dump_profile(result.profile), "utf-8")
        (draft / "rewrites.json").write_text(
            json.dumps(to_json(result.trace.stored), indent=1), "utf-8"
        )
        about["files"] = {name: sha256_of(draft / name) for name in TEXTS}
        (draft / TRAINING).write_text(json.dumps(about, indent=1) + "\n", "utf-8")
        write_npz(draft / "arrays.npz", arrays)


def _lasting_warnings(result: Quantized) -> list[str]:
    """Warnings that training does not change: those about the samples."""
    return [warning for warning in result.facts.warnings if warning not in result.measured_warnings]


def check_trainable(graph: Graph) -> None:
    """Raise UnsupportedError for a graph that cannot be trained or stored."""
    for node in graph.topological():
        if node.op == "opaque" and not isinstance(node.typed(OpaqueAttrs).source, TFSource):
            raise UnsupportedError(
                f"`{kind_of(node)}` is not supported in training",
                node=node.name,
                hint="cut the network before or after it: --inputs, --outputs",
            )
    scales_of(graph)


DAMAGED = "was changed or damaged since it was written"
RESTORE_HINT = "restore the file from a copy, or quantize the model again"
PROBLEM = "is not what `qgraph quantize --mode retrain` wrote"
HINT = "give the directory that `qgraph quantize --mode retrain -o` named"


def check_is_written(path: Path) -> None:
    """Raise LoadError unless `path` is a directory that `save` wrote, by its name and files."""
    if not path.exists():
        raise LoadError("no such directory", node=str(path), hint=HINT)
    if not (path / TRAINING).is_file():
        raise LoadError(PROBLEM, node=str(path), hint=HINT)


def load(path: str | Path) -> TrainingDirectory:
    """Read a directory that `save` or `qgraph quantize --mode retrain` wrote.

    Args:
        path: The directory.

    Returns:
        Its content, without checkpoints.

    Raises:
        LoadError: The directory is missing, damaged, or was not written by this version.

    Examples:
        >>> qgraph.retrain.load("tuned").graph
        Graph(model: ... nodes, image float32[?,8,8,1] -> probabilities float32[?,10])
    """
    path = Path(path)
    check_is_written(path)
    about = read_json(path / TRAINING)
    with reading(path / TRAINING, PROBLEM, HINT):
        if about["format"] != FORMAT:
            raise LoadError(
                f"written by another version of qgraph: format {about['format']}, "
                f"this version reads {FORMAT}",
                node=str(path),
                hint="quantize the model again",
            )
        _check_unchanged(path, about.get("files", {}))
        arrays = read_arrays(path / "arrays.npz", problem=DAMAGED)
        sources = sources_of(arrays)
        graph = _graph(path / "graph.txt", part(arrays, "constant"), sources)
        floating = _graph(path / "float.txt", part(arrays, "float"), sources)
        graph.facts.update(map(str, about["established"]))
        with reading(path / "rewrites.json", DAMAGED, RESTORE_HINT):
            trace = Trace.of(from_json(TraceRecord, read_json(path / "rewrites.json")))
        norms = tuple(_norm(i, names, arrays, graph) for i, names in enumerate(about["norms"]))
        profile = load_profile(path / "profile.yaml")
        # Directories written before 0.2.0 name the measured samples `few`.
        sample, measured = part(arrays, "sample"), part(arrays, "measured") or part(arrays, "few")
        method, facts = CalibrationMethod(about["method"]), from_json(Facts, about["facts"])
    return TrainingDirectory(
        graph, floating, norms, profile, method, trace, sample, measured, facts
    )


def _check_unchanged(path: Path, hashes: Mapping[str, str]) -> None:
    """Raise LoadError that names the first file without the hash that `write` stored."""
    for name, wanted in hashes.items():
        with reading(path / name, DAMAGED, RESTORE_HINT):
            if sha256_of(path / name) != wanted:
                raise LoadError(DAMAGED)


def _graph(path: Path, constants: Mapping[str, Array], sources: Mapping[str, Source]) -> Graph:
    with reading(path, DAMAGED, RESTORE_HINT):
        return parse_graph(path.read_text("utf-8"), constants, sources)


def _norm(i: int, names: Mapping[str, str], arrays: Mapping[str, Array], graph: Graph) -> Norm:
    missing = [names[key] for key in ("layer", "weights", "bias") if names[key] not in graph.nodes]
    if missing:
        raise ValueError(f"a batch norm is of `{missing[0]}`, which does not exist")
    if names["side"] not in ("input", "output"):
        raise ValueError(f"a batch norm is at an unknown side of `{names['layer']}`")
    mean, variance, epsilon = (arrays[f"norm/{i}/{name}"] for name in NORM_ARRAYS)
    layer, side, weights, bias = (names[name] for name in NORM_NAMES)
    return Norm(layer, side, weights, bias, mean, variance, epsilon)
