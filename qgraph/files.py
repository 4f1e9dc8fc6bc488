"""Write files completely or not at all."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from qgraph import drafts
from qgraph.errors import OutputError


def check_free(path: Path, own: Collection[str] = (), *, force: bool = False) -> None:
    """Raise OutputError unless a directory can be created at `path`.

    It may exist if it is empty or, with `force`, if it contains only entries named in `own`.
    """
    try:
        if path.exists() and not path.is_dir():
            raise OutputError("exists and is not a directory", node=str(path))
        found = sorted(p.name for p in path.iterdir()) if path.is_dir() else []
        foreign = [name for name in found if name not in own]
        parent = next((p for p in path.resolve().parents if p.exists()), path)
    except OSError as error:
        raise unwritable(path, error) from None
    if foreign and force:
        raise OutputError(
            f"contains `{foreign[0]}`, which qgraph did not write and does not replace",
            node=str(path),
            hint="choose another path",
        )
    if found and not force:
        by_force = "" if foreign else ", or replace it: --force, in Python force=True"
        raise OutputError(
            "exists and is not empty", node=str(path), hint=f"choose another path{by_force}"
        )
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise OutputError(
            "cannot be written here", node=str(path), hint=f"`{parent}` is not a writable directory"
        )


@dataclass(frozen=True)
class Reserved:
    """The place for an output directory, reserved for this run (see `reserved`)."""

    path: Path
    draft: Path
    own: Collection[str]
    force: bool

    @contextmanager
    def written(self) -> Iterator[Path]:
        """A temporary directory that becomes the output if the block succeeds, else is removed.

        An earlier output stays unchanged until then. Raises OutputError.
        """
        with _as_output_error(self.path):
            self.draft.mkdir()
            yield self.draft
            _sync(self.draft)
            check_free(self.path, self.own, force=self.force)  # files that were added meanwhile
            _replace_directory(self.draft, self.path, self.draft.with_name(drafts.OLD))
            _sync_entry(self.path.parent)


@contextmanager
def reserved(path: Path, own: Collection[str] = (), *, force: bool = False) -> Iterator[Reserved]:
    """Reserve `path` for the output directory of this run, before its content is computed.

    `path` may be anything that `check_free` allows. Raises OutputError, also if another run has
    reserved it or works in it.
    """
    check_free(path, own, force=force)
    path = path.resolve()
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        with ExitStack() as stack:
            with _as_output_error(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    stack.enter_context(drafts.lock_directory(path))
                place, _ = stack.enter_context(drafts.locked_draft(path, drafts.DIRECTORY))
                check_free(path, own, force=force)  # an earlier output may have been restored
            yield Reserved(path, place / drafts.NEW, own, force)
    except BaseException:
        for parent in missing:
            with suppress(OSError):
                parent.rmdir()
        raise


@contextmanager
def whole_directory(
    path: Path, own: Collection[str] = (), *, force: bool = False
) -> Iterator[Path]:
    """`reserved`, and `written` at once."""
    with reserved(path, own, force=force) as place, place.written() as draft:
        yield draft


def make_directory(path: Path) -> None:
    """Create a directory unless it exists. Raises OutputError."""
    with _as_output_error(path):
        path.mkdir(exist_ok=True)


def remove_directory(path: Path) -> None:
    """Remove a directory and its content, if it exists. Raises OutputError."""
    with _as_output_error(path), suppress(FileNotFoundError):
        shutil.rmtree(path)


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace one file, completely or not at all. Raises OutputError."""
    with _as_output_error(path), drafts.locked_draft(path, drafts.FILE) as (draft, handle):
        os.ftruncate(handle, 0)
        with os.fdopen(os.dup(handle), "wb") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), 0o666 & ~_umask())
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)


@contextmanager
def text_path(path: Path) -> Iterator[Path]:
    """The path itself or, if it is not UTF-8, a temporary link to it for libraries that need it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        with tempfile.TemporaryDirectory() as place:
            link = Path(place, f"link{path.suffix if path.suffix.isascii() else ''}")
            link.symlink_to(path.resolve(), target_is_directory=path.is_dir())
            yield link
    else:
        yield path


def _umask() -> int:
    """The process's mask for new files, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _as_output_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> OutputError:
    """The error for a file that the system refuses to write."""
    return OutputError(f"cannot be written: {error.strerror or error}", node=str(path))


def _replace_directory(draft: Path, path: Path, old: Path) -> None:
    """Rename `draft` to `path`, in one step if the system can exchange two names.

    Otherwise an earlier output is moved to `old` first, and back if the second step fails.
    """
    if not path.exists():
        draft.rename(path)
    elif not _exchanged(draft, path):
        try:
            path.rename(old)
            draft.rename(path)
        except BaseException:
            if old.exists():
                old.rename(path)
            raise


RENAME_EXCHANGE, AT_FDCWD = 2, -100  # of linux/fs.h and fcntl.h
# Errors if the kernel, its security policy or the file system does not support the exchange.
UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two names on one file system in one step; False where that is not possible."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    if rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0:
        return True
    found = ctypes.get_errno()
    if found in UNKNOWN:
        return False
    raise OSError(found, os.strerror(found), str(other))


def _sync(folder: Path) -> None:
    """Write everything in `folder` to disk, so that the rename cannot come first."""
    for entry in [folder, *folder.rglob("*")]:
        _sync_entry(entry)


def _sync_entry(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(*paths: Path) -> str:
    """SHA-256 of files, and of all files in directories, in order of their names."""
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
