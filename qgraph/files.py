"""Files are written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qgraph.errors import OutputError


def check_free(path: Path, force: bool = False) -> None:
    """Raise OutputError unless a directory can be made at `path` (it may exist if it is empty)."""
    if path.exists() and not path.is_dir():
        raise OutputError("exists and is not a directory", node=str(path))
    if path.is_dir() and any(path.iterdir()) and not force:
        raise OutputError(
            "exists and is not empty",
            node=str(path),
            hint="another place, or --force to replace it",
        )
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise OutputError(
            "cannot be written here", node=str(path), hint=f"`{parent}` is not a writable directory"
        )


@contextmanager
def whole_directory(path: Path, force: bool = False) -> Iterator[Path]:
    """A temporary directory that becomes `path` when the block ends well, else vanishes."""
    check_free(path, force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", node=str(path)) from None
    try:
        yield draft
        _sync(draft)
        draft.chmod(0o755)
        _take_place(draft, path)
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror or error}", node=str(path)) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _take_place(draft: Path, path: Path) -> None:
    """Rename `draft` to `path`; what stood there is kept until the new one is in place."""
    if not path.exists():
        draft.rename(path)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    path.rename(aside / "was")
    try:
        draft.rename(path)
    except OSError:
        (aside / "was").rename(path)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _sync(folder: Path) -> None:
    for entry in sorted(folder.rglob("*")):
        if entry.is_file():
            with entry.open("rb") as stream:
                os.fsync(stream.fileno())


def sha256_of(path: Path) -> str:
    """Hash of a file, or of every file of a directory in order of name."""
    digest = hashlib.sha256()
    for part in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
        if path.is_dir():
            digest.update(part.relative_to(path).as_posix().encode())
        with part.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
