"""A machine in which the seed of a scheduler decides everything, for the real code of a run."""

from __future__ import annotations

import ctypes
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import IO, Any
from unittest import mock

from qgraph import drafts, files, kernels
from qgraph.ir.types import Array
from qgraph.rl.broadcast import supervisor
from qgraph.rl.broadcast.board import Board
from qgraph.rl.broadcast.channel import Channel
from qgraph.rl.broadcast.supervisor import Supervisor
from qgraph.rl.learn import training
from tests.rl.simulation.native_broadcast import SimulatedNative
from tests.rl.simulation.scheduler import SECOND, TurnScheduler
from tests.rl.simulation.simulated_processes import SimulatedProcesses
from tests.rl.simulation.torn_memory import TornArray

SILENCE = 0.5  # seconds without a heartbeat after which a process is killed
CHECKPOINT_SECONDS = 0.001
FILE_PIECES = 16
FILE_CALLS = ("open", "ftruncate", "replace", "fchmod")


@contextmanager
def shared_memory(scheduler: TurnScheduler, library: ctypes.PyDLL) -> Iterator[None]:
    """Shared memory whose accesses are steps of the scheduler."""
    native, buffer = SimulatedNative(scheduler, library), Channel.buffer

    def torn(channel: Channel, number: int, writable: bool) -> Array:
        return TornArray.of(buffer(channel, number, writable), scheduler.step)

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(kernels, "native_broadcast", lambda: native))
        patches.enter_context(mock.patch.object(Channel, "buffer", torn))
        yield


@contextmanager
def processes(scheduler: TurnScheduler) -> Iterator[None]:
    """Processes of supervisors, and their board."""
    with ExitStack() as patches:
        replaced = SimulatedProcesses(scheduler)
        patches.enter_context(mock.patch.object(supervisor, "subprocess", replaced))
        patches.enter_context(mock.patch.object(sys, "argv", sys.argv))
        patches.enter_context(mock.patch.object(sys, "stdin", sys.stdin))
        patches.enter_context(mock.patch.object(sys, "stderr", io.StringIO()))
        patches.enter_context(
            mock.patch.dict(Supervisor.start.__kwdefaults__, {"silence": SILENCE})
        )
        for name in ("stop", "row", "clear", "heartbeat"):
            patches.enter_context(
                mock.patch.object(Board, name, _stepping(scheduler, getattr(Board, name)))
            )
        yield


@contextmanager
def files_and_clock(scheduler: TurnScheduler) -> Iterator[None]:
    """Files that are written in pieces, and the clock of the learner."""

    def seconds() -> float:
        return scheduler.now / SECOND

    remove = drafts._remove

    def remove_if_alive(*given: Any) -> None:
        if scheduler.try_step():  # the draft of a killed process stays
            remove(*given)

    clock = SimpleNamespace(monotonic=seconds, perf_counter=seconds, sleep=scheduler.sleep)
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(training, "time", clock))
        patches.enter_context(mock.patch.object(drafts, "time", clock))
        patches.enter_context(mock.patch.object(training, "CHECKPOINT_SECONDS", CHECKPOINT_SECONDS))
        patches.enter_context(mock.patch.object(files, "os", SteppingFiles(scheduler)))
        patches.enter_context(mock.patch.object(drafts, "_remove", remove_if_alive))
        yield


class SteppingFiles:
    """The functions of `os` for files, each of which is a step; no disk is waited for."""

    def __init__(self, scheduler: TurnScheduler) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return _stepping(self._scheduler, found) if name in FILE_CALLS else found

    def fsync(self, handle: int) -> None:
        self._scheduler.step()

    def fdopen(self, handle: int, mode: str) -> TornFile:
        return TornFile(self._scheduler, os.fdopen(handle, mode))


class TornFile:
    """A file that is written in pieces, each of which is on disk."""

    def __init__(self, scheduler: TurnScheduler, stream: IO[bytes]) -> None:
        self._scheduler, self._stream = scheduler, stream

    def __enter__(self) -> TornFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, content: bytes) -> None:
        size = -(-len(content) // FILE_PIECES) or 1
        for begin in range(0, len(content), size):
            self._scheduler.step()
            self._stream.write(content[begin : begin + size])
            self._stream.flush()

    def flush(self) -> None:
        self._scheduler.step()


def _stepping(scheduler: TurnScheduler, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is a step of the scheduler."""

    def stepping(*given: Any, **named: Any) -> Any:
        scheduler.step()
        return function(*given, **named)

    return stepping
