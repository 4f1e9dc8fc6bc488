"""The processes of a run: started, monitored, restarted or reported as lost, and ended.

    with Supervisor(processes=3) as run:
        run.start("quantizer", "qgraph.rl.broadcast.quantizer", settings)
        run.start("actor 0", "qgraph.rl.learn.actor_process", settings, restarts=5)
        while ...:
            run.check()

After the block, no process and no shared memory is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO

from qgraph.errors import RunError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.broadcast import clock
from qgraph.rl.broadcast.board import Board, ProcessState
from qgraph.rl.broadcast.member import BoardPlace
from qgraph.words import counted

GRACE = 5.0  # seconds that processes have to end before they are killed
TAIL = 4000  # bytes of a process's output that are reported
LINES = 12


@dataclass
class Child:
    """A process, with everything that starts it again."""

    name: str
    number: int
    module: str
    settings: object
    restarts: int
    silence: float
    on_release: Callable[[], None] | None
    environment: Mapping[str, str]
    output: IO[bytes]
    process: subprocess.Popen[bytes]
    crashes: list[str] = field(default_factory=list)  # the reason of each restart
    ended: bool = False  # without an error
    heartbeat: int = 0  # its latest heartbeat
    heartbeat_at: float = 0.0  # seconds of monitoring until that heartbeat


class Supervisor:
    """Starts the processes of a run, monitors and restarts them, and ends them.

    It is a context manager: after its block, no process and no shared memory is left. One thread
    must use it, and that thread must outlive the processes.

    Args:
        processes: Largest number of processes.

    Examples:
        >>> from qgraph.rl.broadcast import Supervisor
        >>> with Supervisor(processes=2) as run:
        ...     run.check()
        ...     list(run.places(2))
        [0, 1]
    """

    def __init__(self, processes: int) -> None:
        self.board = Board.create(processes)
        self.children: dict[str, Child] = {}
        self._size = processes
        self._used = 0
        self._checked, self._monitored = clock.now(), 0.0

    def start(
        self,
        name: str,
        module: str,
        settings: object,
        *,
        restarts: int = 0,
        silence: float = 300.0,
        on_release: Callable[[], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a process: `python -m module -`, which reads its settings by `joined`.

        Args:
            name: Name of the process, for messages.
            module: Module to run.
            settings: A record (`qgraph.records`) or a mapping.
            restarts: How often the process may crash. The next crash ends the run.
            silence: Seconds without a heartbeat after which the process counts as hung and is
                killed.
            on_release: Called after a crash, before the restart, to release what the process used.
            environment: Environment variables to add to those of this process.

        Raises:
            UsageError: The name is in use, or there is one process too many.
        """
        if name in self.children:
            raise UsageError(f"the run already has a process `{name}`")
        (number,) = self.places(1)
        modules = os.pathsep.join(path for path in sys.path if path)
        variables = {**os.environ, "PYTHONPATH": modules, **(environment or {})}
        output = tempfile.TemporaryFile()  # noqa: SIM115
        process = self._spawn(number, module, settings, variables, output)
        self.children[name] = Child(
            name,
            number,
            module,
            settings,
            restarts,
            silence,
            on_release,
            variables,
            output,
            process,
        )

    def places(self, count: int) -> range:
        """Reserve rows of the board for processes that are started elsewhere.

        Args:
            count: Number of rows.

        Returns:
            The numbers of the rows.

        Raises:
            UsageError: The board has too few rows left.
        """
        begin, self._used = self._used, self._used + count
        if self._used > self._size:
            raise UsageError(f"all {self._size} places of the run are in use")
        return range(begin, self._used)

    def check(self) -> None:
        """Check all processes and restart those that crashed. It is fast enough for every step.

        The time between two checks counts as at most 5 seconds of silence, since the whole run may
        have been stopped meanwhile (Ctrl-Z).

        Raises:
            RunError: A process has crashed too often.
        """
        now = clock.now()
        self._monitored += min(now - self._checked, GRACE)
        self._checked = now
        for child in self.children.values():
            if child.ended:
                continue
            code = child.process.poll()
            heartbeat = int(self.board.row(child.number)["heartbeat"])
            if heartbeat != child.heartbeat:
                child.heartbeat, child.heartbeat_at = heartbeat, self._monitored
            if code is None and self._monitored - child.heartbeat_at < child.silence:
                continue
            if code == 0 and self.board.row(child.number)["state"] == ProcessState.STOPPED:
                child.ended = True
                continue
            self._crashed(child, code)

    def state(self, name: str) -> ProcessState:
        """Get the state of a process.

        Args:
            name: Name of the process.

        Returns:
            The state, as the process reported it last.
        """
        return ProcessState(int(self.board.row(self.children[name].number)["state"]))

    def numbers(self, name: str) -> Array:
        """Get the numbers of a process (`Member.numbers`).

        Args:
            name: Name of the process.

        Returns:
            The numbers, float64 [8].
        """
        numbers: Array = self.board.rows["numbers"][self.children[name].number]
        return numbers

    def crashes(self, name: str) -> tuple[str, ...]:
        """Get the reasons of the restarts of a process.

        Args:
            name: Name of the process.

        Returns:
            One reason for each restart.
        """
        return tuple(self.children[name].crashes)

    def stop(self, grace: float = GRACE) -> None:
        """Tell all processes to end, and kill those that have not ended in time.

        Args:
            grace: Seconds that processes have to end.
        """
        self.board.stop()
        end = clock.now() + grace
        for child in self.children.values():
            try:
                child.process.wait(max(end - clock.now(), 0))
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
            why = _ending(code) + self._last_output(child)
        if len(child.crashes) >= child.restarts:
            before = f" (after {counted(len(child.crashes), 'restart')})" if child.crashes else ""
            child.ended = True
            raise RunError(f"{why}{before}", node=child.name, hint="the run has ended; resume it")
        child.crashes.append(why)
        if child.on_release is not None:
            child.on_release()
        child.output.seek(0)
        child.output.truncate()
        child.process = self._spawn(
            child.number, child.module, child.settings, child.environment, child.output
        )

    def _spawn(
        self,
        number: int,
        module: str,
        settings: object,
        environment: Mapping[str, str],
        output: IO[bytes],
    ) -> subprocess.Popen[bytes]:
        self.board.clear(number)
        place = BoardPlace(self.board.name, number, os.getpid())
        given = json.dumps({"member": place, "settings": settings}, default=vars)
        # This process handles Ctrl-C, so its children have the signal blocked from the start.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with tempfile.TemporaryFile() as file:  # an argument could not be as long
                file.write(given.encode())
                file.seek(0)
                return subprocess.Popen(
                    [sys.executable, "-m", module, "-"],
                    stdin=file,
                    stdout=output,
                    stderr=output,
                    env=dict(environment),
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _last_output(self, child: Child) -> str:
        """The message of a process on the board, or else the end of its output."""
        row = self.board.row(child.number)
        if row["state"] == ProcessState.FAILED:
            return f": {bytes(row['message']).decode(errors='replace')}"
        size = child.output.seek(0, os.SEEK_END)
        child.output.seek(max(size - TAIL, 0))
        lines = child.output.read().decode(errors="replace").split("\n")[-LINES:]
        text = "\n".join(lines).strip()
        return f", after\n{text}" if text else ""


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
