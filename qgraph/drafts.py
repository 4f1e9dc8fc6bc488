"""Temporary paths beside an output, which is written there first; a run locks its own path.

The path for `out` is `.out.qgraph-dir` or `.out.qgraph-file`. The lock ends with the process, so
a path without a lock remained from a run that was killed: the next run removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qgraph.errors import OutputError

DIRECTORY, FILE = ".qgraph-dir", ".qgraph-file"
OLD, NEW = "old", "new"  # in the place for a directory
MAX_STEM_BYTES = 128  # bytes of a name that are repeated in the name of its place
PATIENCE = 1.0  # seconds; a run that removes leftovers holds a lock for an instant
PAUSE = 0.02


@contextmanager
def locked_draft(path: Path, suffix: str) -> Iterator[tuple[Path, int]]:
    """Lock the place for the output `path` until the block ends: its path and file descriptor.

    A directory is empty; a file may have old content. Raises OutputError if another run has locked
    it, OSError if it cannot be created.
    """
    place = path.parent / f".{_short(path.name)}{suffix}"
    handle = _locked(place, path)
    try:
        if suffix == DIRECTORY:
            _clear(place, path)
        remove_leftovers(path.parent)
        yield place, handle
    finally:
        _remove(place, handle)
        os.close(handle)


@contextmanager
def lock_directory(folder: Path) -> Iterator[None]:
    """Lock an existing directory: no other run may work in it or replace it meanwhile.

    Raises OutputError if another run has locked it. Does nothing if the directory does not exist.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        if not _lock(handle):
            raise _busy(folder)
        yield
    finally:
        os.close(handle)


def remove_leftovers(folder: Path) -> None:
    """Remove the places in `folder` that no run has locked."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(".") and name.endswith((DIRECTORY, FILE)):
                with suppress(OSError):
                    _remove_leftover(folder / name)


def _remove_leftover(place: Path) -> None:
    handle = _open(place, os.O_RDONLY)
    try:
        # `old` may be all that is left of an output: only the next run for it can restore it.
        if _lock(handle, without=False) and _is_at(handle, place) and not (place / OLD).exists():
            _remove(place, handle)
    finally:
        os.close(handle)


def _short(name: str) -> str:
    """A short form of a long name, for the name of its place."""
    whole = os.fsencode(name)
    if len(whole) <= MAX_STEM_BYTES:
        return name
    digest = hashlib.sha256(whole).hexdigest()[:16]
    return f"{os.fsdecode(whole[: MAX_STEM_BYTES - len(digest)])}{digest}"


def _locked(place: Path, path: Path) -> int:
    deadline = time.monotonic() + PATIENCE
    while True:
        late = time.monotonic() > deadline
        try:
            handle = _made(place)
        except FileNotFoundError:  # removed by another run before it was opened
            if late:
                raise
        else:
            free = _lock(handle)
            if free and _is_at(handle, place):
                return handle
            os.close(handle)
            if late:
                raise _busy(path)
        time.sleep(PAUSE)


def _made(place: Path) -> int:
    if not place.name.endswith(DIRECTORY):
        return _open(place, os.O_RDWR | os.O_CREAT)
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    return _open(place, os.O_RDONLY | os.O_DIRECTORY)


def _open(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _lock(handle: int, *, without: bool = True) -> bool:
    """Whether this process got the lock. without: the result on file systems without locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return without
    return True


def _is_at(handle: int, place: Path) -> bool:
    """Whether the open file still has that name: another run may have moved or removed it."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(handle), os.lstat(place))
    return False


def _clear(place: Path, path: Path) -> None:
    """Empty the place for a directory; restore the output that a killed run was replacing."""
    if (place / OLD).exists() and not path.exists():
        (place / OLD).rename(path)
    for entry in os.scandir(place):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _remove(place: Path, handle: int) -> None:
    if not _is_at(handle, place):
        return
    if stat.S_ISDIR(os.fstat(handle).st_mode):
        shutil.rmtree(place, ignore_errors=True)
    else:
        with suppress(OSError):
            place.unlink()


def _busy(path: Path) -> OutputError:
    return OutputError(
        "another run is writing here",
        node=str(path),
        hint="wait until it has ended, or choose another path",
    )
