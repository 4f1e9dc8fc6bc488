"""The manifest of an output directory, and its statistics, as they are stored in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from qgraph.archives import read_json, reading
from qgraph.choices import CalibrationMethod
from qgraph.errors import LoadError, first_line
from qgraph.files import sha256_of
from qgraph.ir.types import Role
from qgraph.quant.profile import Profile
from qgraph.records import FLAT, KeyedRecord, from_json
from qgraph.static.facts import Facts

# It increases when a key of the manifest is added, removed, or changes its meaning.
FORMAT = 8

Exponent = int | tuple[int, ...] | None
T = TypeVar("T")


@dataclass(frozen=True)
class LayerEntry:
    """A compute layer: bits, exponents, exactness bound, SQNR of its output in dB."""

    name: str
    op: str
    input: str
    input_scales: Sequence[str]
    weight: str
    weight_bits: int
    weight_exponent: Exponent
    output: str | None
    output_bits: int | None
    output_exponent: Exponent
    sqnr_db: float | None
    accumulator_bound: int
    accumulator_bits: int
    exact_in: str


@dataclass(frozen=True)
class TensorEntry:
    """A quantizer; `of` is the tensor that it quantizes."""

    name: str
    of: str
    role: Role
    bits: int
    signed: bool
    exponent: Exponent
    group: str | None
    sqnr_db: float | None


@dataclass(frozen=True)
class GroupEntry:
    """Quantizers that share a scale."""

    exponent: Exponent
    members: Sequence[str]


@dataclass(frozen=True)
class FloatOpEntry:
    """An op that is computed in float; `between`: whether integer layers precede and follow it."""

    name: str
    op: str
    between: bool = False


@dataclass(frozen=True)
class Manifest(KeyedRecord):
    """The facts of a network; `files` has the hash of each file."""

    format: int
    versions: Mapping[str, str]
    facts: Facts = field(metadata=FLAT)
    established: Sequence[str]
    calibration_method: CalibrationMethod
    profile: Profile
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    tensorflow_names: Mapping[str, Mapping[str, str]]
    layers: Sequence[LayerEntry]
    tensors: Sequence[TensorEntry]
    scale_groups: Mapping[str, GroupEntry]
    float_ops: Sequence[FloatOpEntry]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_islands(self) -> bool:
        """Whether float ops lie between integer layers."""
        return any(op.between for op in self.float_ops)


@dataclass(frozen=True)
class AloneEntry:
    """SQNR in dB of a quantizer alone, with its exponent and with the finest without clipping."""

    sqnr_alone_db: float | None
    sqnr_max_db: float | None


@dataclass(frozen=True)
class StatisticsEntry:
    """Statistics of a quantizer's input; `alone` if it has one exponent."""

    least: float
    greatest: float
    elements: int
    zeros: int
    clipped_below: int
    clipped_above: int
    vanished: int
    max_exponent: int | None
    first_bin: int
    log2_width: int
    counts: Sequence[int]
    alone: AloneEntry | None = field(default=None, metadata=FLAT)


@dataclass(frozen=True)
class StatisticsRecord:
    """statistics.json."""

    samples: int
    outputs_sqnr_db: Mapping[str, float | None]
    tensors: Mapping[str, StatisticsEntry]


def read_manifest(folder: Path) -> Manifest:
    """The manifest in an output directory. Raises LoadError."""
    found = manifest_of(folder)
    if found is None:
        exists = folder.exists()
        if (folder / "manifest.json").is_file():  # a file that is not JSON is named
            read_json(folder / "manifest.json")
        raise LoadError(
            "not what `qgraph quantize` wrote" if exists else "no such directory",
            node=str(folder),
            hint="give the output directory of `qgraph quantize`",
        )
    return found


def manifest_of(path: Path) -> Manifest | None:
    """The manifest of an output directory or of a file in one; None for another path.

    Raises LoadError for a directory of another version, and for one whose graph is not the one
    that was written.
    """
    folder = path if (path / "manifest.json").is_file() else path.parent
    try:
        found = read_json(folder / "manifest.json")
    except LoadError:
        return None
    if not {"format", "versions", "files"} <= found.keys() or not isinstance(found["files"], dict):
        return None
    if found["format"] != FORMAT:
        if folder != path:
            return None
        raise LoadError(
            f"written by another version of qgraph: its manifest has format "
            f"{found['format']}, this version reads {FORMAT}",
            node=str(folder),
            hint="quantize the model again",
        )
    whole = "inference.pb" if "inference.pb" in found["files"] else "graph.txt"
    part = whole if folder == path else path.name
    if (folder / part).exists() and sha256_of(folder / part) == found["files"].get(part):
        return _parsed(found, folder)
    if folder == path:
        raise LoadError(
            "changed since it was written", node=str(path / part), hint="quantize the model again"
        )
    return None


def record_in(kind: type[T], path: Path) -> T | None:
    """A record that a command added to a directory; None where it is missing or damaged."""
    try:
        with reading(path):
            return from_json(kind, read_json(path))
    except LoadError:
        return None


def _parsed(found: Mapping[str, object], folder: Path) -> Manifest:
    try:
        return from_json(Manifest, found)
    except Exception as error:  # records may raise anything on a damaged manifest
        raise LoadError(
            f"its manifest was changed or damaged: {first_line(error)}",
            node=str(folder),
            hint="quantize the model again",
        ) from None
