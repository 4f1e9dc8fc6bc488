"""Standard output whose failures are errors: closed, a full disk, a reader that has ended."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from qgraph.errors import PipeError, StreamError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@contextmanager
def checked_streams() -> Iterator[None]:
    """Replace the standard streams: failed writes raise StreamError or PipeError.

    Characters that the encoding of the stream lacks, such as bytes of a path that are not UTF-8,
    are escaped.
    """
    missing = _open_closed_streams()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    before = sys.stdout
    if before is None or missing:
        raise StreamError("standard output is closed", hint="redirect it: > /dev/null")
    redirected, own_errors = before is not sys.__stdout__, sys.stderr is sys.__stderr__
    if redirected:  # the caller in this process captures it
        yield
        return
    if own_errors:
        sys.stderr = _checked(sys.stderr, _Errors, by_line=True)
    sys.stdout = _checked(before, _Output, by_line=before.isatty())
    try:
        yield
        sys.stdout.flush()
    except SystemExit:
        sys.stdout.flush()
        raise
    finally:
        sys.stdout = before


def discard_output() -> None:
    """Discard what is still buffered when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _open_closed_streams() -> bool:
    """Open /dev/null for each standard stream that is closed, so that no file gets its number.

    Returns whether standard output was closed.
    """
    closed = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            closed.append(number)
    return 1 in closed


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise PipeError("the program that read standard output has ended") from None
            raise StreamError(f"cannot be written: {error.strerror}", node="stdout") from None


class _Errors(io.FileIO):
    def write(self, data: ReadableBuffer) -> int:
        with suppress(OSError):  # only the exit code is left to report it
            return super().write(data) or 0
        return memoryview(data).nbytes


def _checked(stream: TextIO, kind: type[io.FileIO], *, by_line: bool) -> TextIO:
    stream.flush()
    buffered = io.BufferedWriter(kind(stream.fileno(), "wb", closefd=False))
    return io.TextIOWrapper(buffered, stream.encoding, "backslashreplace", line_buffering=by_line)
