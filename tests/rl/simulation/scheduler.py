"""Processes that take turns as a seed decides, on a virtual clock.

Each process is a thread that runs only while it has the turn. It may lose it before each step: an
access of shared memory, of a file, or of another process. The scheduler also pauses processes,
kills them, and makes some much faster than others. The same seed gives the same schedule.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

STEP = 1_000  # nanoseconds
SECOND = 1_000_000_000
MAX_STEPS = 400_000


class Killed(BaseException):
    """Raised in a process that was killed; each further step raises it again."""


class ScheduleFault(Exception):
    """A schedule broke a rule."""


@dataclass(frozen=True)
class Dangers:
    """How often a schedule pauses and kills; steps between two events, and seconds of a pause."""

    between: int = 300
    longest_pause: float = 1.0
    kills: float = 0.3  # share of events
    most_kills: int = 3


@dataclass(eq=False)
class SimulatedTask:
    """A process: why it waits, and how it ended."""

    name: str
    parent: SimulatedTask | None
    mortal: bool = True  # whether the schedule may kill it
    speed: float = 1.0
    turn: threading.Lock = field(default_factory=threading.Lock)
    wakes_at: int | None = None  # it waits at most until then
    word: int = 0  # the address of the word on which it sleeps
    seen: int = 0  # the value of the word when it fell asleep
    killed: bool = False
    code: int | None = None  # exit code; None while it runs
    error: str = ""
    thread: threading.Thread | None = None

    def lost_wake(self) -> bool:
        """Whether it sleeps although its word has changed."""
        return bool(self.word) and _word(self.word) != self.seen


class TurnScheduler:
    """Runs processes in turns until the first has ended."""

    def __init__(self, seed: int, dangers: Dangers, seconds: float = 60.0) -> None:
        self.random = random.Random(seed)
        self.dangers = dangers
        self.now = 0  # nanoseconds
        self.steps = 0
        self.kills = 0  # by the schedule
        self.deaths = 0  # of processes that were killed by anyone
        self.fault: str = ""
        self.tasks: list[SimulatedTask] = []
        self.current: SimulatedTask | None = None
        self._limit = int(seconds * SECOND)
        self._stay = self.random.choice((0.0, 0.5, 0.9, 0.98))
        self._event_at = self._next_event()
        self._doomed: list[tuple[int, SimulatedTask]] = []  # children of a killed process
        self._finished = threading.Lock()
        self._return_to: SimulatedTask | None = None  # who killed the process that unwinds
        self._ending = False

    # -- outside of processes -------------------------------------------------------------------

    def run(self, name: str, function: Callable[[], object]) -> None:
        """Run a process, with those that it starts, until it ends. Raises ScheduleFault."""
        self._finished.acquire()
        first = self.spawn(name, function, mortal=False)
        self.current = first
        first.turn.release()
        self._finished.acquire()
        for task in self.tasks:
            if task.thread is not None:
                task.thread.join()
        if first.error and not self.fault:
            self.fault = first.error
        if self.fault:
            raise ScheduleFault(self.fault)

    # -- inside of processes --------------------------------------------------------------------

    def spawn(
        self, name: str, function: Callable[[], object], mortal: bool = True, delay: float = 0.0
    ) -> SimulatedTask:
        """Start a process, which dies with the one that starts it."""
        task = SimulatedTask(name, self.current, mortal, self._speed())
        task.turn.acquire()
        if delay:
            task.wakes_at = self.now + int(delay * SECOND)
        task.thread = threading.Thread(target=self._live, args=(task, function), daemon=True)
        self.tasks.append(task)
        task.thread.start()
        return task

    def step(self) -> None:
        """Let the scheduler choose who runs next. Raises Killed in a killed process."""
        if not self.try_step():
            raise Killed

    def try_step(self) -> bool:
        """`step`, which returns False in a killed process."""
        task = self.current
        if task is None:  # outside of the run
            return True
        if task.killed:
            return False
        self.steps += 1
        self.now += STEP
        if self.steps >= self._event_at:
            self._event(task)
        elif self._stay and self.random.random() < self._stay:
            return True
        return self._pass_turn(task)

    def sleep(self, seconds: float) -> None:
        """Sleep without a way to be woken."""
        if not self.sleep_on(0, 0, int(seconds * SECOND)):
            raise Killed

    def sleep_on(self, word: int, seen: int, nanoseconds: int) -> bool:
        """Sleep while the word has the value `seen`; False in a killed process."""
        task = self.current
        if task is None or not self.try_step():
            return task is None
        if word and _word(word) != seen:
            return True
        task.word, task.seen = word, seen
        task.wakes_at = self.now + nanoseconds
        return self._pass_turn(task)

    def wake(self, word: int) -> bool:
        """Wake all that sleep on a word; False in a killed process."""
        if not self.try_step():
            return False
        for task in self.tasks:
            if task.word == word:
                _awake(task)
        return True

    def kill(self, task: SimulatedTask) -> None:
        """Kill a process now. Its children are killed a little later."""
        if task.killed or task.code is not None:
            return
        task.killed = True
        self.deaths += 1
        for child in self.tasks:
            if child.parent is task:
                self._doomed.append((self.now + self.random.randrange(200 * STEP), child))
        if task is not self.current:  # its thread ends at once
            killer = self.current
            assert killer is not None
            before, self._return_to, self.current = self._return_to, killer, task
            task.turn.release()
            killer.turn.acquire()
            self._return_to = before

    def calm(self) -> None:
        """End all dangers."""
        self._event_at = MAX_STEPS * 2

    def fail(self, why: str) -> None:
        """End the schedule with a fault. Raises Killed."""
        self._fail(why)
        raise Killed

    # -- turns ----------------------------------------------------------------------------------

    def _live(self, task: SimulatedTask, function: Callable[[], object]) -> None:
        task.turn.acquire()
        try:
            if not task.killed:
                function()
            task.code = -9 if task.killed else 0
        except Killed:
            task.code = -9
        except SystemExit as error:
            task.code = error.code if isinstance(error.code, int) else 1
        except BaseException as error:
            task.code, task.error = 1, "".join(traceback.format_exception(error))
        if task.killed:
            task.code = -9
        if self._ending:
            return
        if self._return_to is not None:
            self.current = self._return_to
            self._return_to.turn.release()
            return
        for child in self.tasks:  # those that it has started end with it
            if child.parent is task and child.code is None:
                self._doomed.append((self.now, child))
        if task is self.tasks[0] or self.fault:
            self._end_all(task)
        else:
            self._next_turn()

    def _pass_turn(self, task: SimulatedTask) -> bool:
        """Give the turn to a process that can run; returns when this one has it again."""
        if not task.killed:
            self._next_turn(task)
        return not task.killed

    def _next_turn(self, task: SimulatedTask | None = None) -> None:
        chosen = self._choose()
        if chosen is None:  # the schedule has failed
            if task is not None:
                task.killed = True
            else:
                self._end_all(None)
            return
        if chosen is task:
            return
        self.current = chosen
        chosen.turn.release()
        if task is not None:
            task.turn.acquire()

    def _choose(self) -> SimulatedTask | None:
        self._kill_doomed()
        if self.fault:
            return None
        ready = [task for task in self.tasks if self._ready(task)]
        if not ready:
            waiting = [task for task in self.tasks if task.code is None]
            if not waiting:
                return self._fail("no process is left")
            # Unless one was killed, or is paused, between its change of a bell and the wake-up.
            all_sleep = not self.deaths and all(task.word for task in waiting)
            if all_sleep and any(task.lost_wake() for task in waiting):
                return self._fail("a process sleeps although its bell has rung")
            self.now = min(task.wakes_at or 0 for task in waiting)
            ready = [task for task in waiting if (task.wakes_at or 0) <= self.now]
        if self.now > self._limit or self.steps > MAX_STEPS:
            seconds = f"{self.now / SECOND:.3g} virtual seconds"
            return self._fail(f"no end after {seconds}, {self.steps} steps")
        chosen = ready[0] if len(ready) == 1 else self._drawn(ready)
        _awake(chosen)
        return chosen

    def _drawn(self, ready: list[SimulatedTask]) -> SimulatedTask:
        at = self.random.random() * sum(task.speed for task in ready)
        for task in ready:
            at -= task.speed
            if at <= 0:
                return task
        return ready[-1]

    def _ready(self, task: SimulatedTask) -> bool:
        return task.code is None and (task.wakes_at is None or task.wakes_at <= self.now)

    # -- dangers --------------------------------------------------------------------------------

    def _next_event(self) -> int:
        return self.steps + 1 + int(self.random.expovariate(1 / self.dangers.between))

    def _speed(self) -> float:
        return float(10 ** self.random.uniform(-2, 2))

    def _event(self, task: SimulatedTask) -> None:
        """Kill or pause a process, or change all speeds."""
        self._event_at = self._next_event()
        kind = self.random.random()
        alive = [one for one in self.tasks if one.code is None and not one.killed]
        if kind < self.dangers.kills and self.kills < self.dangers.most_kills:
            mortal = [one for one in alive if one.mortal]
            if mortal:
                self.kills += 1
                self.kill(self.random.choice(mortal))
        elif kind < 0.6:
            paused = self.random.choice(alive)
            seconds = self.dangers.longest_pause * 10 ** self.random.uniform(-5, 0)
            if not paused.word:
                paused.wakes_at = max(paused.wakes_at or 0, self.now + int(seconds * SECOND))
        else:
            for one in alive:
                one.speed = self._speed()

    def _kill_doomed(self) -> None:
        due = [task for at, task in self._doomed if at <= self.now]
        self._doomed = [(at, task) for at, task in self._doomed if at > self.now]
        for task in due:
            self.kill(task)

    def _fail(self, why: str) -> None:
        if not self.fault:
            self.fault = "\n".join([why, *map(self._report, self.tasks)])

    def _report(self, task: SimulatedTask) -> str:
        """The state of a process, and where it is."""
        if task.code is not None:
            return f"-- {task.name}: ended with {task.code}\n{task.error}".rstrip()
        waits = "" if task.wakes_at is None else f", waits until {task.wakes_at / SECOND:.6f}"
        frame = sys._current_frames().get(task.thread.ident or 0) if task.thread else None
        calls = traceback.extract_stack(frame) if frame else []
        own = [call for call in calls if call.filename != __file__]
        stack = "".join(traceback.format_list(own[-6:]))
        return f"-- {task.name} at {self.now / SECOND:.6f}{waits}\n{stack}".rstrip()

    def _end_all(self, last: SimulatedTask | None) -> None:
        """Kill what is left, one after the other, and return to `run`."""
        self._ending = True
        for task in self.tasks:
            if task is not last and task.code is None:
                task.killed = True
                task.turn.release()
                assert task.thread is not None
                self.current = task
                task.thread.join()
        self.current = None
        self._finished.release()


def _awake(task: SimulatedTask) -> None:
    task.wakes_at, task.word = None, 0


def _word(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value
