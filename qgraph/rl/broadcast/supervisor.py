"""The processes of a run: started, watched, restarted or mourned, and ended.

    with Supervisor(processes=3) as run:
        run.start("quantizer", "qgraph.rl.broadcast.quantizer", settings)
        run.start("actor 0", "qgraph.rl.learn.actor_process", settings, restarts=5, freed=clear)
        while ...:
            run.check()

What the block leaves behind is nothing: no process, no memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any

from qgraph.errors import RunError, UsageError
from qgraph.rl.broadcast.board import Board, ProcessState

GRACE = 5.0  # seconds that processes have to end by themselves
TAIL = 4000  # bytes of a process's output that are looked at
LINES = 12


@dataclass
class Child:
    """A process, and how to start it again."""

    name: str
    number: int
    module: str
    settings: Mapping[str, Any]
    restarts: int
    silence: float
    freed: Callable[[], None] | None
    environment: Mapping[str, str]
    output: IO[bytes]
    process: subprocess.Popen[bytes]
    crashes: list[str] = field(default_factory=list)  # why it was restarted, each time
    ended: bool = False  # well, by itself
    beat: int = 0  # the last that was seen of it
    heard: float = 0.0  # after how many seconds of watching that was


class Supervisor:
    """Starts processes and looks after them. To be used by one thread, which outlives them.

    processes: how many there can be.
    """

    def __init__(self, processes: int) -> None:
        self.board = Board.create(processes)
        self.children: dict[str, Child] = {}
        self._size = processes
        self._used = 0
        self._checked, self._watched = time.monotonic(), 0.0

    def start(
        self,
        name: str,
        module: str,
        settings: Mapping[str, Any],
        *,
        restarts: int = 0,
        silence: float = 300.0,
        freed: Callable[[], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start `python -m module -` with settings, as JSON, on its standard input (see
        `member.joined`): an argument could not be as long as those of many actors are.

        restarts: how often it may crash; a process with none ends the run by its death. silence:
        seconds without a heartbeat after which it is taken as hung and killed. freed: called when
        it has crashed, before it is started again, to give back what it held. environment:
        variables beside this process's own.

        Raises UsageError for a name that is taken or one process too many.
        """
        if name in self.children:
            raise UsageError(f"two processes of the run are called `{name}`")
        (number,) = self.places(1)
        modules = os.pathsep.join(path for path in sys.path if path)
        variables = {**os.environ, "PYTHONPATH": modules, **(environment or {})}
        output = tempfile.TemporaryFile()  # noqa: SIM115
        process = self._spawn(number, module, settings, variables, output)
        self.children[name] = Child(
            name, number, module, settings, restarts, silence, freed, variables, output, process
        )

    def places(self, count: int) -> range:
        """Rows of the board, which nobody else gets: for processes that are started elsewhere.

        Raises UsageError where so many are not left.
        """
        begin, self._used = self._used, self._used + count
        if self._used > self._size:
            raise UsageError(f"more processes than the {self._size} of the run")
        return range(begin, self._used)

    def check(self) -> None:
        """Look after all of them; cheap enough for every step.

        Of a time in which nobody looked a silence counts GRACE seconds at most: the whole run may
        have been stopped meanwhile (Ctrl-Z). Raises RunError when one has died that the run cannot
        do without.
        """
        now = time.monotonic()
        self._watched += min(now - self._checked, GRACE)
        self._checked = now
        for child in self.children.values():
            if child.ended:
                continue
            code = child.process.poll()
            beat = int(self.board.row(child.number)["beat"])
            if beat != child.beat:
                child.beat, child.heard = beat, self._watched
            if code is None and self._watched - child.heard < child.silence:
                continue
            if code == 0 and self.board.row(child.number)["state"] == ProcessState.STOPPED:
                child.ended = True
                continue
            self._crashed(child, code)

    def state(self, name: str) -> ProcessState:
        return ProcessState(int(self.board.row(self.children[name].number)["state"]))

    def numbers(self, name: str) -> Any:
        """The numbers of a process (`Member.numbers`), float64 [8]."""
        return self.board.rows["numbers"][self.children[name].number]

    def crashes(self, name: str) -> tuple[str, ...]:
        """Why a process was restarted, each time."""
        return tuple(self.children[name].crashes)

    def stop(self, grace: float = GRACE) -> None:
        """End all: they are told to, and killed where they have not after `grace` seconds."""
        self.board.stop()
        end = time.monotonic() + grace
        for child in self.children.values():
            try:
                child.process.wait(max(end - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.output.close()

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except BaseException:  # a second Ctrl-C
            self.stop(grace=0.0)
            raise

    def _crashed(self, child: Child, code: int | None) -> None:
        if code is None:
            why = f"hung: no heartbeat for {child.silence:g} s"
            child.process.kill()
            child.process.wait()
        else:
            why = _fate(code) + self._last_words(child)
        if len(child.crashes) >= child.restarts:
            times = f" for the {len(child.crashes) + 1}th time" if child.crashes else ""
            child.ended = True
            raise RunError(f"{why}{times}", node=child.name, hint="the run ends; resume it")
        child.crashes.append(why)
        if child.freed is not None:
            child.freed()
        child.output.seek(0)
        child.output.truncate()
        child.process = self._spawn(
            child.number, child.module, child.settings, child.environment, child.output
        )

    def _spawn(
        self,
        number: int,
        module: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
        output: IO[bytes],
    ) -> subprocess.Popen[bytes]:
        self.board.clear(number)
        place = {"board": self.board.name, "row": number, "parent": os.getpid()}
        # Ctrl-C is this process's to handle: what it starts has the signal blocked from the first.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with tempfile.TemporaryFile() as told:
                told.write(json.dumps({**settings, "member": place}).encode())
                told.seek(0)
                return subprocess.Popen(
                    [sys.executable, "-m", module, "-"],
                    stdin=told,
                    stdout=output,
                    stderr=output,
                    env=dict(environment),
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _last_words(self, child: Child) -> str:
        """Its own message, or else the end of its output."""
        row = self.board.row(child.number)
        if row["state"] == ProcessState.FAILED:
            return f": {bytes(row['message']).decode(errors='replace')}"
        size = child.output.seek(0, os.SEEK_END)
        child.output.seek(max(size - TAIL, 0))
        lines = child.output.read().decode(errors="replace").split("\n")[-LINES:]
        text = "\n".join(lines).strip()
        return f", after\n{text}" if text else ""


def _fate(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
