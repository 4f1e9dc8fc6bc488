"""Whole runs: learner, quantizer and actors, with their real code, under a scheduler.

Everything may be killed at any step: the supervisor restarts actors, and the user resumes the run.
At the end every actor must act by the newest weights.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any
from unittest import mock

import numpy as np

from qgraph.errors import RunError
from qgraph.progress import silent_steps
from qgraph.rl.agents.impala.config import ImpalaConfig
from qgraph.rl.broadcast import ray
from qgraph.rl.learn import actor_process, training, worker
from qgraph.rl.learn.directory import CHECKPOINT, RunDirectory
from qgraph.rl.learn.sources import ExperienceSource
from qgraph.rl.learn.training import Training
from tests.rl.simulation.known_weights import (
    BITS,
    CheckedActor,
    SimulatedEnvironment,
    SimulatedLearner,
    weights_of,
)
from tests.rl.simulation.scheduler import SECOND, Dangers, TurnScheduler
from tests.rl.simulation.simulated_machine import files_and_clock, processes, shared_memory
from tests.rl.simulation.simulated_ray import SimulatedRay

SECONDS = 15.0  # of virtual time; a schedule needs about one
STALE = 5.0  # seconds without dangers after which an actor is stale for good
MOST_RESUMED = 12
MEMORY = "/dev/shm"  # files there are written fast


@dataclass(frozen=True)
class RunForm:
    """The settings by which runs differ."""

    settings: Mapping[str, object]
    steps: int = 24
    actors: int = 2

    def config(self) -> ImpalaConfig:
        settings: dict[str, Any] = dict(self.settings)
        if "compress" not in settings:  # whose links choose the bits
            settings["actor_bits"] = BITS
        return ImpalaConfig(
            "simulated",
            steps=self.steps,
            actors=self.actors,
            batch_size=4,
            unroll_length=2,
            actor_update_period=1,
            **settings,
        )


@dataclass
class WholeRun:
    """One schedule of a run, and what it has reached."""

    scheduler: TurnScheduler
    form: RunForm
    path: Path
    saved: int = -1  # learner steps of the last complete checkpoint
    ends: list[str] = field(default_factory=list)  # how each part of the run ended

    def run(self) -> None:
        """As a user: begin a run, and resume it until it ends."""
        for _ in range(MOST_RESUMED):
            task = self.scheduler.spawn("learner", self._learn)
            while task.code is None:
                self.scheduler.sleep(0.01)
            if task.error:
                self.scheduler.fail(task.error)
            if self.ends and self.ends[-1] == "done":
                return
        self.scheduler.fail(f"not done after {self.ends}")

    def _learn(self) -> None:
        resume = (self.path / CHECKPOINT).exists()
        if self.saved >= 0 and not resume:
            self.scheduler.fail("the checkpoint is lost")
        directory = RunDirectory(self.path, resume)
        try:
            config = directory.config() if resume else self.form.config()
            run = SimulatedTraining(self, config, directory, resume)
            if resume:
                self._check_resumed(run)
            else:
                directory.begin(config)
            self.ends.append("killed")
            if not run.done:  # else it was lost when all it did was wait for its actors
                run.run(_no_watch, silent_steps)
            self.ends[-1] = "done"
        except RunError as error:
            if not self.scheduler.deaths:
                raise
            self.ends[-1] = str(error)
        finally:
            directory.close()

    def _check_resumed(self, run: Training) -> None:
        """Fail unless the last complete checkpoint, or a later one, was read, and is whole."""
        steps = run.counts.learner_steps
        if steps < self.saved:
            self.scheduler.fail(f"the checkpoint is of step {steps}, not {self.saved} or later")
        if int(run.learner.state["count"].numpy()) != steps:
            self.scheduler.fail("the checkpoint mixes two steps")
        for name, value in weights_of(steps).items():
            if not np.array_equal(run.learner.policy[name].numpy(), value):
                self.scheduler.fail(f"the checkpoint has other weights {name}")
        inserts, samples, _, _ = run.limiter.state()
        if inserts - samples != len(run.replay):
            self.scheduler.fail(f"{inserts} - {samples} steps, but {len(run.replay)} in the queue")


class SimulatedTraining(Training):
    """The real training, which at its end waits until all actors act by the newest weights."""

    def __init__(
        self, whole: WholeRun, config: ImpalaConfig, directory: RunDirectory, resume: bool
    ) -> None:
        super().__init__(config, directory, resume=resume)
        self.whole = whole

    def checkpoint(self) -> None:
        super().checkpoint()
        self.whole.saved = self.counts.learner_steps

    def _report(self, actors: ExperienceSource, watch: object) -> None:
        """The last evaluation: no more dangers, and every actor must get the newest policy."""
        scheduler = self.whole.scheduler
        scheduler.calm()
        end = scheduler.now + STALE * SECOND
        newest = dict.fromkeys(range(self.config.actors), -1)
        while set(newest.values()) != {self.counts.learner_steps}:
            if scheduler.now > end:
                scheduler.fail(f"actors act by {newest}, not by {self.counts.learner_steps}")
            for record in actors.take(64, 0.05):
                newest[int(record["actor"])] = int(record["version"])


class NoScalars:
    """Takes the place of the numbers for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        """Write nothing."""

    def add(self, *_: object) -> None:
        """Do nothing."""

    close = add


def run_whole(seed: int, library: ctypes.PyDLL, form: RunForm) -> TurnScheduler:
    """Run one schedule of a run. Raises ScheduleFault."""
    scheduler = TurnScheduler(seed, Dangers(), SECONDS)

    scalars: Any = ModuleType("scalars")
    scalars.Scalars = NoScalars
    with ExitStack() as stack:
        place = MEMORY if Path(MEMORY).is_dir() else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place)))
        for part in (shared_memory(scheduler, library), processes(scheduler)):
            stack.enter_context(part)
        stack.enter_context(files_and_clock(scheduler))
        stack.enter_context(mock.patch.dict("sys.modules", {"qgraph.rl.learn.scalars": scalars}))
        for module in (training, worker):
            stack.enter_context(
                mock.patch.object(module, "make", lambda name: SimulatedEnvironment(scheduler))
            )
        stack.enter_context(
            mock.patch.object(training, "learner_for", lambda *_: SimulatedLearner(scheduler))
        )
        stack.enter_context(
            mock.patch.object(actor_process, "Actor", partial(CheckedActor, scheduler))
        )
        cluster = SimulatedRay(scheduler, form.config().nodes)
        stack.enter_context(mock.patch.object(ray, "_ray", lambda: cluster))
        scheduler.run("user", WholeRun(scheduler, form, folder / "run").run)
    return scheduler


FORMS: Mapping[str, RunForm] = MappingProxyType(
    {
        "quantizer": RunForm({}),
        "synchronous": RunForm({"synchronous": True}),
        "on_demand": RunForm({"on_demand": True}),
        "synchronous_on_demand": RunForm({"synchronous": True, "on_demand": True}),
        "direct": RunForm({"quantizer": False}),
        "compressor": RunForm({"compress": "quantize(8)"}),
        "compressor_on_demand": RunForm({"compress": "quantize(8)", "on_demand": True}),
        "relays": RunForm({"ray": "auto", "nodes": 2}),
        "relay_synchronous": RunForm({"ray": "auto", "synchronous": True}),
    }
)


def _no_watch(status: object) -> None:
    """Do nothing."""
