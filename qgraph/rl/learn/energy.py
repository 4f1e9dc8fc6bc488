"""The cost of a run: processor seconds of each process, and energy as codecarbon estimates it.

Where the machine does not tell its power, codecarbon takes it from the load of the processor: an
estimate, good for ratios between runs on one machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from qgraph.distribution import install_hint
from qgraph.errors import UsageError

COUNTRY = "USA"  # codecarbon wants one, for emissions; they are not used


class Meter:
    """From its making to `read`: this process and those that it starts. Raises UsageError."""

    def __init__(self) -> None:
        try:
            from codecarbon import OfflineEmissionsTracker
        except ImportError as error:
            raise UsageError(
                f"codecarbon is missing ({error})",
                hint=install_hint("codecarbon", extra="energy"),
            ) from None
        logging.getLogger("codecarbon").setLevel(logging.CRITICAL)
        self._tracker = OfflineEmissionsTracker(
            country_iso_code=COUNTRY,
            tracking_mode="process",
            save_to_file=False,
            log_level="critical",
            allow_multiple_runs=True,
        )
        self._tracker.start()

    def read(self, processes: Mapping[str, int]) -> dict[str, Any]:
        """To be called once, at the end, while the processes (name to id) are there."""
        seconds = {name: cpu_seconds(process) for name, process in processes.items()}
        self._tracker.stop()
        found = self._tracker.final_emissions_data
        return {
            "estimated_kwh": found.energy_consumed,
            "of_processor": found.cpu_energy,
            "of_memory": found.ram_energy,
            "seconds": found.duration,
            "processor_seconds": seconds,
        }


def together(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The sum of `Meter.read` of both parts of a run that was stopped and resumed."""
    found = dict(before)
    for name, value in after.items():
        inner = isinstance(value, Mapping)
        found[name] = together(found.get(name, {}), value) if inner else found.get(name, 0) + value
    return found


def cpu_seconds(process: int) -> float:
    """Processor seconds of a process so far; 0 for one that has ended."""
    try:
        with open(f"/proc/{process}/stat") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
