"""Hidden places beside an output where it is written first; a live run has a lock on its place.

The place for `out` is `.out.qgraph-dir` or `.out.qgraph-file`. The lock ends with the process, so
a place without one was left behind by a run that was killed: the next run removes it.
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
LONGEST = 128  # bytes of a name that are repeated in the name of its place
PATIENCE = 1.0  # seconds; a run that removes leftovers holds a lock for an instant
PAUSE = 0.02


@contextmanager
def held(path: Path, suffix: str) -> Iterator[tuple[Path, int]]:
    """The place for the output `path`, and its file descriptor; ours until the block ends.

    A directory is empty, a file may have old content. Raises OutputError where another run holds
    it, OSError where it cannot be made.
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
def sole_user(folder: Path) -> Iterator[None]:
    """Lock an existing directory for work: no other run may work in it or replace it meanwhile.

    Raises OutputError where another run does. Does nothing where there is no such directory.
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
    """Remove the places in `folder` that no run holds any more."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(".") and name.endswith((DIRECTORY, FILE)):
                with suppress(OSError):
                    _remove_leftover(folder / name)


def _remove_leftover(place: Path) -> None:
    handle = _open(place, os.O_RDONLY)
    try:
        # What stands in `old` may be all that is left of an output: only its next run knows.
        if _lock(handle, without=False) and _is_at(handle, place) and not (place / OLD).exists():
            _remove(place, handle)
    finally:
        os.close(handle)


def _short(name: str) -> str:
    """The name, as far as the name of its place has room for it."""
    whole = os.fsencode(name)
    if len(whole) <= LONGEST:
        return name
    digest = hashlib.sha256(whole).hexdigest()[:16]
    return f"{os.fsdecode(whole[: LONGEST - len(digest)])}{digest}"


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
    """Whether we have the lock; `without` is the answer on file systems that have none."""
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
    """Empty the place for a directory; what a killed run was about to replace goes back."""
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
