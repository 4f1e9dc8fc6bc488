"""All scenarios by name, and how a schedule that fails is run again."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType

from tests.rl.simulation.ends import run_ends
from tests.rl.simulation.native_broadcast import compiled
from tests.rl.simulation.scheduler import ScheduleFault, TurnScheduler
from tests.rl.simulation.whole_run import FORMS, run_whole

Scenario = Callable[[int, ctypes.PyDLL], TurnScheduler]
SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "ends": run_ends,
        **{name: partial(run_whole, form=form) for name, form in FORMS.items()},
    }
)


def run_schedules(name: str, seeds: Iterable[int]) -> tuple[int, int, int]:
    """Run a scenario with each seed: the number of schedules, of steps, and of kills.

    Raises ScheduleFault with the command that runs the schedule again.
    """
    library, count, steps, kills = compiled(), 0, 0, 0
    for seed in seeds:
        try:
            done = SCENARIOS[name](seed, library)
        except ScheduleFault as fault:
            again = f"python -m tests.rl.simulation {name} --seed {seed}"
            raise ScheduleFault(f"{fault}\n\nagain: {again}") from None
        count, steps, kills = count + 1, steps + done.steps, kills + done.kills
    return count, steps, kills


def spread(schedules: int) -> dict[str, int]:
    """Schedules of each scenario: half of them of the ends, which take a tenth of the time."""
    runs = [name for name in SCENARIOS if name != "ends"]
    each = schedules // 2 // len(runs)
    return {"ends": schedules - each * len(runs), **dict.fromkeys(runs, each)}
