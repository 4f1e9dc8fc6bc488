"""Run schedules: python -m tests.rl.simulation [SCENARIO] [--seed N] [--schedules N]."""

from __future__ import annotations

import argparse
import sys
import time

from tests.rl.simulation.scheduler import ScheduleFault
from tests.rl.simulation.schedules import SCENARIOS, run_schedules, spread


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rl.simulation")
    parser.add_argument("scenario", nargs="?", choices=SCENARIOS, help="all if it is left out")
    parser.add_argument("--seed", type=int, help="run this schedule alone")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--schedules", type=int, default=100)
    given = parser.parse_args()
    if given.seed is not None:
        given.first, given.schedules = given.seed, 1
    counts = spread(given.schedules)
    if given.scenario or given.seed is not None:
        counts = {given.scenario or "ends": given.schedules}
    for name, count in counts.items():
        began = time.perf_counter()
        try:
            done, steps, kills = run_schedules(name, range(given.first, given.first + count))
        except ScheduleFault as fault:
            print(fault)
            return 1
        seconds = time.perf_counter() - began
        print(
            f"{name}: {done} schedules, {steps} steps, {kills} kills, {seconds:.0f} s", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
