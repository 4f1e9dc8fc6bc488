"""Processes of a supervisor as processes of a scheduler, which run the same modules."""

from __future__ import annotations

import importlib
import io
import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import IO

from tests.rl.simulation.scheduler import SimulatedTask, TurnScheduler

LONGEST_START = 0.02  # seconds until a process begins


class SimulatedProcesses:
    """Takes the place of `subprocess` in `qgraph.rl.broadcast.supervisor`."""

    TimeoutExpired = subprocess.TimeoutExpired

    def __init__(self, scheduler: TurnScheduler) -> None:
        self.scheduler = scheduler
        self.pids = itertools.count(1)

    def Popen(
        self, args: Sequence[str], stdin: IO[bytes], stdout: IO[bytes], **_: object
    ) -> SimulatedPopen:
        """Start `python -m MODULE -` as a process of the scheduler."""
        _, _, module, _ = args
        self.scheduler.step()
        main: Callable[[], None] = importlib.import_module(module).main
        given = stdin.read().decode()

        def begin() -> None:
            sys.argv, sys.stdin = [module, "-"], io.StringIO(given)  # read before the first step
            main()

        delay = self.scheduler.random.uniform(0, LONGEST_START)
        name = f"{module.rpartition('.')[2]} {next(self.pids)}"
        return SimulatedPopen(self.scheduler, self.scheduler.spawn(name, begin, delay=delay))


class SimulatedPopen:
    """The interface of `subprocess.Popen` that a supervisor uses."""

    def __init__(self, scheduler: TurnScheduler, task: SimulatedTask) -> None:
        self._scheduler, self._task = scheduler, task
        self.pid = id(task)

    def poll(self) -> int | None:
        self._scheduler.step()
        return -9 if self._task.killed else self._task.code

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else self._scheduler.now + int(timeout * 1e9)
        while (code := self.poll()) is None:
            if end is not None and self._scheduler.now >= end:
                raise subprocess.TimeoutExpired("simulated", timeout or 0)
            self._scheduler.sleep(0.005)
        return code

    def kill(self) -> None:
        self._scheduler.step()
        self._scheduler.kill(self._task)
