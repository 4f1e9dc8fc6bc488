"""The part of Ray that `qgraph.rl.broadcast.ray` uses, on a scheduler: actors, calls, losses.

An actor of Ray is a process of the scheduler. A message takes a while in each direction. When the
process dies, its calls that have no result raise RayActorError, as Ray does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from tests.rl.simulation.scheduler import SECOND, SimulatedTask, TurnScheduler

LONGEST_MESSAGE = 0.002  # seconds
POLL = 0.0005


class RayTaskFailed(Exception):
    """`ray.exceptions.RayTaskError`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class RayActorLost(Exception):
    """`ray.exceptions.RayActorError`."""


class RayReference:
    """A result, maybe of a call that has not ended."""

    def __init__(self, value: object = None, arrives: float = 0, task: Any = None) -> None:
        self.value, self.arrives, self.task = value, arrives, task
        self.error: Exception | None = None


class SimulatedRay:
    """Takes the place of the module `ray`."""

    exceptions = SimpleNamespace(
        RayTaskError=RayTaskFailed,
        RayActorError=RayActorLost,
        ActorUnschedulableError=RayActorLost,
    )

    def __init__(self, scheduler: TurnScheduler, nodes: int) -> None:
        self.scheduler, self._nodes = scheduler, nodes
        strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda place, soft: place)
        self.util = SimpleNamespace(scheduling_strategies=strategies)

    def init(self, **_: object) -> None:
        self.scheduler.step()

    shutdown = init

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "0")

    def nodes(self) -> list[dict[str, object]]:
        return [{"NodeID": str(number), "Alive": True} for number in range(self._nodes)]

    def put(self, value: object) -> RayReference:
        self.scheduler.step()
        return RayReference(value)

    def remote(self, kind: type) -> Any:
        create = partial(RayHandle, self, kind)
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=create))

    def delay(self) -> float:
        """The time at which a message arrives that is sent now."""
        seconds = self.scheduler.random.uniform(0, LONGEST_MESSAGE)
        return self.scheduler.now + seconds * SECOND

    def wait(
        self, calls: Sequence[RayReference], timeout: float, num_returns: int = 1
    ) -> tuple[list[RayReference], list[RayReference]]:
        end = self.scheduler.now + timeout * SECOND
        while True:
            ended = [call for call in calls if self._ended(call)]
            if len(ended) >= num_returns or self.scheduler.now >= end:
                return ended, [call for call in calls if call not in ended]
            self.scheduler.sleep(POLL)

    def get(self, call: RayReference) -> object:
        while not self._ended(call):
            self.scheduler.sleep(POLL)
        if call.error is not None:
            raise call.error
        if call.arrives > self.scheduler.now:
            raise RayActorLost("the relay is lost")
        return call.value

    def _ended(self, call: RayReference) -> bool:
        lost = call.task is not None and (call.task.killed or call.task.code is not None)
        return call.arrives <= self.scheduler.now or lost


class RayHandle:
    """An actor of Ray; `handle.method.remote(...)` calls it."""

    def __init__(self, ray: SimulatedRay, kind: type, *given: object) -> None:
        self._ray, self._kind, self._given = ray, kind, given
        self._calls: deque[tuple[float, RayReference, str, Sequence[object]]] = deque()
        ray.scheduler.step()
        self._task: SimulatedTask = ray.scheduler.spawn("relay", self._live)

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=partial(self._call, name))

    def _call(self, name: str, *given: object) -> RayReference:
        self._ray.scheduler.step()
        plain = [one.value if isinstance(one, RayReference) else one for one in given]
        call = RayReference(None, float("inf"), self._task)
        self._calls.append((self._ray.delay(), call, name, plain))
        return call

    def _live(self) -> None:
        scheduler = self._ray.scheduler
        target: Any = self._kind(*self._given)
        while True:
            while not self._calls or self._calls[0][0] > scheduler.now:
                scheduler.sleep(POLL)
            _, call, name, given = self._calls.popleft()
            method: Callable[..., object] = getattr(target, name)
            try:
                call.value = method(*given)
            except Exception as error:
                call.error = RayTaskFailed(error)
            call.arrives = self._ray.delay()
