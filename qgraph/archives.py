"""Read untrusted files within limits: zip archives, arrays and JSON.

Every fault of a file becomes a LoadError. The unpacked size is checked against the size of the file
before anything is unpacked. Nothing is unpickled, and members of archives are never written under
their own names.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np

from qgraph.downloads import failed_download
from qgraph.errors import LoadError, first_line
from qgraph.ir.types import Array

# A file may unpack to this many bytes, or to this multiple of its size.
MAX_UNPACKED, MAX_RATIO = 1 << 28, 200
MAX_MEMBERS = 1 << 17
BLOCK = 1 << 22
LOCAL_HEADER = 30  # bytes before the name of a zip member
ENCRYPTED = 1
UNREADABLE = "cannot be read"
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
JsonObject: TypeAlias = dict[str, Any]


def most_unpacked(size: int) -> int:
    """The most bytes that a file of `size` bytes may unpack to."""
    return max(MAX_UNPACKED, MAX_RATIO * size)


@contextmanager
def reading(
    where: str | Path | None, problem: str = UNREADABLE, hint: str | None = None
) -> Iterator[None]:
    """Turn every exception of the block into a LoadError at `where`."""
    place = None if where is None else str(where)
    try:
        yield
    except LoadError as error:
        error.node, error.hint = error.node or place, error.hint or hint
        raise
    except Exception as error:  # parsers may raise anything on a foreign file
        reason = getattr(error, "strerror", None) or first_line(error)
        if isinstance(error, KeyError):
            reason = f"{reason} is missing"
        raise LoadError(f"{problem}: {reason}", node=place, hint=hint) from None


class Archive:
    """A zip file whose directory was checked: sizes, overlaps, encryption, methods.

    Raises LoadError that names `where`; its message is `problem` and the fault.
    """

    def __init__(
        self, source: Path | bytes, where: str | Path | None = None, problem: str = UNREADABLE
    ) -> None:
        self.source, self.problem = source, problem
        self.where = str(where if where is not None else source)
        if isinstance(source, Path) and (failed := failed_download(source)) is not None:
            raise LoadError(failed.name, node=self.where, hint=failed.advice)
        with reading(self.where, problem), self._opened() as archive:
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
            self._check(archive, size)
            self.members = {info.filename: info for info in archive.infolist()}

    def _opened(self) -> zipfile.ZipFile:
        source = self.source
        return zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)

    def _check(self, archive: zipfile.ZipFile, size: int) -> None:
        members = sorted(archive.infolist(), key=lambda info: info.header_offset)
        if len(members) > MAX_MEMBERS:
            raise ValueError(f"an archive of {len(members):,} members")
        if len({info.filename for info in members}) < len(members):
            raise ValueError("two members of the archive have the same name")
        if sum(info.file_size for info in members) > most_unpacked(size):
            raise ValueError(f"it unpacks to more than {most_unpacked(size):,} bytes")
        ends = [info.header_offset for info in members[1:]] + [archive.start_dir]
        for info, end in zip(members, ends, strict=False):
            if info.flag_bits & ENCRYPTED or info.compress_type not in METHODS:
                raise ValueError("a member of the archive is encrypted or compressed unusually")
            if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
                raise ValueError("a member of the archive has two sizes")
            if info.header_offset + LOCAL_HEADER + info.compress_size > end:
                raise ValueError("members of the archive overlap")

    @contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        """A member as a stream. Every exception while it is read becomes a LoadError."""
        with reading(self.where, self.problem):
            if name not in self.members:
                raise ValueError(f"`{name}` is missing from the archive")
            with self._opened() as archive, archive.open(self.members[name]) as stream:
                yield stream

    def read(self, name: str) -> bytes:
        with self.opened(name) as stream:
            return stream.read()

    def copy(self, name: str, target: Path) -> None:
        """Write a member to the file `target`."""
        with self.opened(name) as stream, target.open("wb") as file:
            shutil.copyfileobj(stream, file)

    def array(self, name: str) -> Array:
        """A member in .npy form."""
        with self.opened(name) as stream:
            return _array(stream, self.members[name].file_size)

    def arrays(self, wanted: Callable[[str], bool]) -> dict[str, Array]:
        """The members in .npy form by name, without the suffix; the directory is read once."""
        found = {}
        with reading(self.where, self.problem), self._opened() as archive:
            for file, member in self.members.items():
                name = file.removesuffix(".npy")
                if wanted(name):
                    with archive.open(member) as stream:
                        found[name] = _array(stream, member.file_size)
        return found

    def start_of(self, name: str) -> int:
        """Offset in bytes of the content of a stored member in the file."""
        assert isinstance(self.source, Path)
        member = self.members[name]
        with reading(self.where), self.source.open("rb") as stream:
            stream.seek(member.header_offset)
            header = stream.read(LOCAL_HEADER)
            name_length, extra = struct.unpack("<HH", header[26:30])
        return member.header_offset + LOCAL_HEADER + int(name_length) + int(extra)


def npy_header(
    stream: IO[bytes], size: int
) -> tuple[tuple[int, ...], np.dtype[Any], Literal["C", "F"]]:
    """Shape, dtype and memory order of the array in `stream`, in .npy form.

    Raises ValueError unless the array fills the `size` bytes of the stream, and for objects.
    """
    form = np.lib.format
    first = form.read_magic(stream) == (1, 0)
    read = form.read_array_header_1_0 if first else form.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("arrays of Python objects are not supported")
    if any(length < 0 for length in shape) or dtype.itemsize == 0:
        raise ValueError("an array of impossible shape or dtype")
    if prod(shape) * dtype.itemsize != size - stream.tell():
        raise ValueError(f"an array of shape {list(shape)[:8]} that its data does not fill")
    return shape, dtype, "F" if fortran else "C"


def _array(stream: IO[bytes], size: int) -> Array:
    shape, dtype, order = npy_header(stream, size)
    array: Array = np.empty(shape, dtype, order)
    rest = memoryview(array.reshape(-1, order="A").view(np.uint8).data)
    while rest:
        block = stream.read(min(len(rest), BLOCK))
        if not block:
            raise EOFError("an array is cut short")
        rest[: len(block)] = block
        rest = rest[len(block) :]
    stream.read(1)  # checksums are compared at the end
    return array


def read_npy(path: Path) -> Array:
    """The array in an `.npy` file. Raises LoadError."""
    with reading(path), path.open("rb") as stream:
        return _array(stream, path.stat().st_size)


def read_arrays(
    source: Path | bytes,
    where: str | Path | None = None,
    problem: str = UNREADABLE,
    *,
    wanted: Callable[[str], bool] = lambda name: True,
) -> dict[str, Array]:
    """Every array of an `.npz` whose name is wanted. Raises LoadError."""
    return Archive(source, where, problem).arrays(wanted)


def read_json(path: Path) -> JsonObject:
    """The JSON object in a file. Raises LoadError."""
    with reading(path):
        return parse_json(path.read_bytes())


def parse_json(text: bytes | str) -> JsonObject:
    """A JSON object. Raises ValueError and, if it is nested too deeply, RecursionError."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found
