"""The cost of a run: processor seconds of each process, and energy and emissions as codecarbon
estimates them.

If the machine does not report its power, codecarbon estimates it from the processor's load, which
is good enough for ratios between runs on one machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TypeAlias

from qgraph.distribution import install_hint
from qgraph.errors import UsageError
from qgraph.rl.setting_text import SettingText

Costs: TypeAlias = "Mapping[str, float | Costs]"


class Meter:
    """Measures this process and its children until `read` or `close`.

    country: ISO code of three letters; its mix of power plants gives the emissions. Raises
    UsageError if codecarbon is missing, or does not know the country.
    """

    def __init__(self, country: str) -> None:
        try:
            from codecarbon import OfflineEmissionsTracker
            from codecarbon.input import DataSource
        except ImportError as error:
            raise UsageError(
                f"codecarbon is missing ({error})",
                hint=install_hint("codecarbon", extra="energy"),
            ) from None
        known = DataSource().get_global_energy_mix_data()
        if country not in known:
            raise UsageError(
                SettingText("codecarbon does not know the {country} {value}", value=country),
                hint="use an ISO code of three letters, such as FRA",
            )
        logging.getLogger("codecarbon").setLevel(logging.CRITICAL)
        self._tracker = OfflineEmissionsTracker(
            country_iso_code=country,
            tracking_mode="process",
            save_to_file=False,
            log_level="critical",
            allow_multiple_runs=True,
        )
        self._tracker.start()
        self._measures = True

    def read(self, processes: Mapping[str, int]) -> Costs:
        """Call this once, at the end, while the processes (ids by name) are alive."""
        seconds = {name: cpu_seconds(process) for name, process in processes.items()}
        self.close()
        data = self._tracker.final_emissions_data
        return {
            "estimated_kwh": data.energy_consumed,
            "of_processor": data.cpu_energy,
            "of_memory": data.ram_energy,
            "emissions_kg": data.emissions,
            "seconds": data.duration,
            "processor_seconds": seconds,
        }

    def close(self) -> None:
        """Stop measuring, which takes a thread. Does nothing if it has stopped."""
        if self._measures:
            self._measures = False
            self._tracker.stop()


def together(before: Costs, after: Costs) -> Costs:
    """The sums of `Meter.read` before and after a run was resumed."""
    sums = dict(before)
    for name, cost in after.items():
        earlier = before.get(name)
        if isinstance(cost, Mapping):
            sums[name] = together(earlier if isinstance(earlier, Mapping) else {}, cost)
        else:
            sums[name] = cost + (0 if earlier is None or isinstance(earlier, Mapping) else earlier)
    return sums


def cpu_seconds(process: int) -> float:
    """Processor seconds of a process so far; 0 for one that has ended."""
    try:
        with open(f"/proc/{process}/stat") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
