"""Standard output that fails in words: closed, a full disk, a reader that has gone."""

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
    """Standard streams of a command: what cannot be written raises StreamError or PipeError.

    Text that the encoding of the stream does not have, like bytes of a path that are not UTF-8, is
    written as escapes.
    """
    missing = _filled()
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


def give_up_output() -> None:
    """Have what is still buffered go nowhere when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _filled() -> bool:
    """Put /dev/null where a standard stream is closed, so that no file gets its number.

    Whether that was so of standard output.
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
                raise PipeError("whoever read standard output has gone") from None
            raise StreamError(f"cannot be written: {error.strerror}", node="stdout") from None


class _Errors(io.FileIO):
    def write(self, data: ReadableBuffer) -> int:
        with suppress(OSError):  # nowhere is left to say it: the exit code does
            return super().write(data) or 0
        return memoryview(data).nbytes


def _checked(stream: TextIO, kind: type[io.FileIO], *, by_line: bool) -> TextIO:
    stream.flush()
    buffered = io.BufferedWriter(kind(stream.fileno(), "wb", closefd=False))
    return io.TextIOWrapper(buffered, stream.encoding, "backslashreplace", line_buffering=by_line)
