"""Ctrl-C as a request to stop after the current step, and as an error that is not lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

PAUSE = 0.05  # seconds until an interrupt that Python dropped is raised again


class Interrupter:
    """A handler of Ctrl-C that raises KeyboardInterrupt and remembers that it did."""

    def __init__(self) -> None:
        self.interrupted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        raise KeyboardInterrupt


def raise_interrupts() -> None:
    """Make sure that a KeyboardInterrupt is never lost in this process.

    Python drops exceptions of callbacks between two lines: `__del__`, and weak references, which
    every import has. Such an interrupt is raised again. Libraries also drop it if they catch every
    exception; `stoppable` and `raise_dropped` notice that.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # ignored in the background of a shell
    signal.signal(signal.SIGINT, Interrupter())
    report = sys.unraisablehook

    def again(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            report(dropped)
            return
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(PAUSE, signal.pthread_kill, (main, signal.SIGINT))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = again


def raise_dropped() -> None:
    """Raise KeyboardInterrupt for a Ctrl-C that a library dropped, in the main thread."""
    handler = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and isinstance(handler, Interrupter) and handler.interrupted:
        handler.interrupted = False
        raise KeyboardInterrupt


def was_interrupted() -> bool:
    """Whether a Ctrl-C was not caught on purpose. A library may have replaced its error."""
    handler = signal.getsignal(signal.SIGINT)
    return isinstance(handler, Interrupter) and handler.interrupted


def accept_interrupt() -> None:
    """State that a KeyboardInterrupt was caught on purpose: it ends a search, not the command."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, Interrupter):
        handler.interrupted = False


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Count Ctrl-C: the first one requests a stop, the second one interrupts.

    Raises KeyboardInterrupt for an earlier one that was dropped.
    """
    interrupted: list[int] = []  # signals
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(number)
        with suppress(OSError):  # not `print`, whose buffer may be in use
            os.write(2, b"stopping after this step; Ctrl-C again stops at once\n")

    signal.signal(signal.SIGINT, note)
    try:
        if isinstance(before, Interrupter) and before.interrupted:
            raise KeyboardInterrupt
        yield lambda: bool(interrupted)
    finally:
        signal.signal(signal.SIGINT, before)
