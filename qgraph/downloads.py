"""Files that a failed download leaves: a web page or a Git LFS pointer instead of the file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HEAD = 512  # bytes that are enough to recognise one
HTML = re.compile(rb"<!doctype html|<html|<head|<\?xml[^>]*>\s*<!doctype html")


@dataclass(frozen=True)
class WrongFile:
    """A file that is not what was asked for.

    name    what the file is, with its article
    advice  what to do instead
    """

    name: str
    advice: str


WEB_PAGE = WrongFile(
    "a web page (HTML), not the file itself",
    "the download failed: open the file to see why, and download it again",
)
LFS_POINTER = WrongFile(
    "a Git LFS pointer, not the file itself", "fetch the file: git lfs pull, in its repository"
)


def failed_download(path: Path) -> WrongFile | None:
    """Recognize a file of a failed download; None for another file."""
    try:
        with path.open("rb") as file:
            return failed_download_of(file.read(HEAD))
    except OSError:
        return None


def failed_download_of(head: bytes) -> WrongFile | None:
    """Recognize it by the first bytes of a file."""
    if head.startswith(b"version https://git-lfs"):
        return LFS_POINTER
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return WEB_PAGE if HTML.match(text) else None
