"""Files are written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qgraph.errors import OutputError


def check_free(path: Path, replaceable: Collection[str] = ()) -> None:
    """Raise OutputError unless a directory can be made at `path`.

    It may exist if nothing is in it but entries named in `replaceable`.
    """
    try:
        if path.exists() and not path.is_dir():
            raise OutputError("exists and is not a directory", node=str(path))
        found = sorted(p.name for p in path.iterdir()) if path.is_dir() else []
        foreign = [name for name in found if name not in replaceable]
        parent = next((p for p in path.resolve().parents if p.exists()), path)
    except OSError as error:
        raise _failure(path, error) from None
    if foreign and replaceable:
        raise OutputError(
            f"holds `{foreign[0]}`, which is not replaced",
            node=str(path),
            hint="give another place",
        )
    if foreign:
        raise OutputError(
            "exists and is not empty",
            node=str(path),
            hint="give another place, or --force to replace it",
        )
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise OutputError(
            "cannot be written here", node=str(path), hint=f"`{parent}` is not a writable directory"
        )


@contextmanager
def whole_directory(path: Path, replaceable: Collection[str] = ()) -> Iterator[Path]:
    """A temporary directory that becomes `path` when the block ends well, else vanishes.

    What stood at `path` stays as it was until then (see `check_free` for what may stand there).
    """
    check_free(path, replaceable)
    path = path.resolve()
    missing = [parent for parent in path.parents if not parent.exists()]
    with _told_as_output_error(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            workshop = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            try:
                draft = workshop / "new"
                draft.mkdir()
                yield draft
                _sync(draft)
                _take_place(draft, path, workshop / "old")
            finally:
                shutil.rmtree(workshop, ignore_errors=True)
        except BaseException:
            for parent in missing:
                with suppress(OSError):
                    parent.rmdir()
            raise


def write_whole(path: Path, content: bytes) -> None:
    """Write one file, whole or not at all; what stood there is replaced. Raises OutputError."""
    with _told_as_output_error(path):
        handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                os.fchmod(stream.fileno(), 0o666 & ~_umask())
                os.fsync(stream.fileno())
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise


def _umask() -> int:
    """The process's mask for new files, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _told_as_output_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _failure(path, error) from error


def _failure(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot be written: {error.strerror or error}", node=str(path))


def _take_place(draft: Path, path: Path, old: Path) -> None:
    """Rename `draft` to `path`; what stood there comes back if that fails."""
    try:
        if path.exists():
            path.rename(old)
        draft.rename(path)
    except BaseException:
        if old.exists():
            old.rename(path)
        raise


def _sync(folder: Path) -> None:
    """Have the disk hold all that is in `folder`, so that the rename cannot come first."""
    for entry in [folder, *folder.rglob("*")]:
        handle = os.open(entry, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sha256_of(*paths: Path) -> str:
    """Hash of files; directories stand for every file in them, in order of name."""
    digest = hashlib.sha256()
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for part in inside:
            if path.is_dir():
                digest.update(part.relative_to(path).as_posix().encode())
            with part.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()
