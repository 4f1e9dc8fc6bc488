"""The file of a quantized policy, `.qpol`: a manifest in JSON, and the sections that it lists.

    magic 8, format uint32, size of the manifest uint32, size of the file uint64, SHA-256 of
    everything after these 64 bytes; the manifest; sections, each at a multiple of 64

Numbers are little-endian. The file is mapped into memory, and the policy runs in place.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qgraph.archives import parse_json, reading
from qgraph.errors import LoadError
from qgraph.files import write_whole
from qgraph.ir.types import Array, Exponent, QuantSpec
from qgraph.rl.head import Head
from qgraph.rl.policy.observation_columns import ObservationColumns

MAGIC = b"\x89QPL\r\n\x1a\n"
FORMAT = 1
ALIGNMENT = 64
HEADER = struct.Struct("<8sIIQ32s8x")
QUANTIZE_AGAIN = "quantize the policy again"


@dataclass(frozen=True)
class ObservationRange:
    """The range of each feature, or of each channel of images, in the calibration."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def ends(self) -> tuple[Array, Array]:
        return np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)


@dataclass(frozen=True)
class IntegerEntry:
    """The tensor of the engine that takes observations as codes, and their number format."""

    tensor: str
    spec: QuantSpec


@dataclass(frozen=True)
class PolicyManifest:
    """The facts of a manifest that running a policy needs; others are ignored.

    input, facts, entry and exits are of static policies: the input of the graph, its facts, and
    the ends of the integer part (None, unless everything between them is integer). exits: by
    output, a tensor of the engine and its exponent. columns: of a policy whose observations are
    dictionaries, or that has states; its shape and outputs are without the states.
    """

    form: str
    bits: int
    shape: tuple[int, ...]
    outputs: tuple[str, ...]
    head: Head | None
    range: ObservationRange | None
    input: str | None = None
    facts: tuple[str, ...] = ()
    entry: IntegerEntry | None = None
    exits: Mapping[str, tuple[str, Exponent]] | None = None
    columns: ObservationColumns | None = None


@dataclass(frozen=True)
class Packed:
    """The content of a `.qpol` file.

    Attributes:
        manifest: Facts of the policy, as JSON.
        sections: Bytes by name, uint8 [size].

    Examples:
        >>> from qgraph.rl.policy import Packed
        >>> Packed({"form": "dynamic"}, {}).as_bytes()[1:4]
        b'QPL'
    """

    manifest: Mapping[str, object]
    sections: Mapping[str, Array]

    def write(self, path: str | Path) -> Path:
        """Write the file, completely or not at all.

        Args:
            path: Path of the file.

        Returns:
            The path.

        Raises:
            OutputError: The file cannot be written.
        """
        path = Path(path)
        write_whole(path, self.as_bytes())
        return path

    def as_bytes(self) -> bytes:
        """Convert to the bytes of a file.

        Returns:
            The bytes.
        """
        sizes = {name: len(data) for name, data in self.sections.items()}
        manifest = json.dumps({**self.manifest, "sections": sizes}).encode()
        body = b"".join(map(_padded, [manifest, *(d.tobytes() for d in self.sections.values())]))
        digest = hashlib.sha256(body).digest()
        size = HEADER.size + len(body)
        return HEADER.pack(MAGIC, FORMAT, len(manifest), size, digest) + body


def is_packed(path: Path) -> bool:
    """Whether a file has the magic of a quantized policy."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read(path: str | Path) -> Packed:
    """Map the content of a `.qpol` file. Raises LoadError for a damaged file."""
    try:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: the file is empty
        reason = getattr(error, "strerror", None) or "it is empty"
        raise LoadError(f"cannot be read: {reason}", node=str(path)) from None
    try:
        return _parsed(np.frombuffer(data, np.uint8))
    except LoadError as error:
        error.node = str(path)
        raise


def _parsed(data: Array) -> Packed:
    if len(data) < HEADER.size or data[: len(MAGIC)].tobytes() != MAGIC:
        raise LoadError("not a quantized policy", hint="`qgraph rl quantize` writes them")
    _, version, length, size, digest = HEADER.unpack(data[: HEADER.size].tobytes())
    if version != FORMAT:
        raise LoadError(f"format {version}; this version reads {FORMAT}", hint=QUANTIZE_AGAIN)
    if size != len(data):
        raise LoadError(f"{len(data)} bytes, not {size}", hint=QUANTIZE_AGAIN)
    if hashlib.sha256(data[HEADER.size :].data).digest() != digest:
        raise LoadError("damaged: its checksum is wrong", hint=QUANTIZE_AGAIN)
    with reading(None, "is damaged", QUANTIZE_AGAIN):
        manifest = parse_json(data[HEADER.size : HEADER.size + length].tobytes())
        sections, at = {}, HEADER.size + _aligned(length)
        for name, count in manifest.pop("sections").items():
            if not 0 <= count <= len(data) - at:
                raise ValueError(f"section `{name}` ends after the end of the file")
            sections[str(name)] = data[at : at + count]
            at += _aligned(count)
    return Packed(manifest, sections)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(section: bytes) -> bytes:
    return section.ljust(_aligned(len(section)), b"\0")
