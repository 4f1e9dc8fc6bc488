"""Vela, the compiler for Arm Ethos-U: run on an exported file, and its estimates."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qgraph.archives import reading
from qgraph.choices import Accelerator, chosen
from qgraph.errors import LoadError, UnsupportedError
from qgraph.records import from_json, to_json

TOOL = "vela"
ESTIMATES = "vela.json"  # the file of an export


@dataclass(frozen=True)
class VelaEstimate:
    """Vela's estimate of one run, for the default memory of an accelerator.

    cycles: of a run. milliseconds: of a run, at the clock of `system`. products: multiplications
    with additions. sram, dram, flash: bytes in use. cpu_operators: ops that the NPU does not run.
    """

    accelerator: str
    system: str
    cycles: int
    milliseconds: float
    products: int
    sram: int
    dram: int
    flash: int
    cpu_operators: int


def estimate(file: Path, accelerator: str) -> VelaEstimate:
    """Compile a `.tosa` or `.tflite` file for an accelerator.

    Args:
        file: The file.
        accelerator: A value of `qgraph.choices.Accelerator`.

    Returns:
        Vela's estimate.

    Raises:
        UnsupportedError: Vela is not installed, or cannot compile the file.
        LoadError: Its summary cannot be read.
    """
    tool = shutil.which(TOOL)
    if tool is None:
        raise UnsupportedError(f"{TOOL} was not found", hint="pipx install ethos-u-vela")
    with tempfile.TemporaryDirectory(prefix="qgraph-") as folder:
        command = [tool, "--accelerator-config", accelerator, "--output-dir", folder]
        command.append(str(file.resolve()))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        summaries = [*Path(folder).glob("*_summary_*.csv")]
        if done.returncode or len(summaries) != 1:
            said = f"{done.stdout}{done.stderr}".strip().splitlines() or ["no message"]
            raise UnsupportedError(
                f"{TOOL} does not compile the file for {accelerator}: {said[-1]}",
                hint="Ethos-U runs files of profile `tosa`; other roundings need ops that it lacks",
            )
        with summaries[0].open(encoding="utf-8", newline="") as lines:
            row = next(csv.DictReader(lines))
    on_cpu = [line for line in done.stdout.splitlines() if line.startswith("CPU operators =")]
    try:
        return VelaEstimate(
            accelerator,
            row["system_config"],
            int(float(row["cycles_total"])),
            1000 * float(row["inference_time"]),
            int(float(row["nn_macs"])),
            _bytes(row["sram_memory_used"]),
            _bytes(row["dram_memory_used"]),
            _bytes(row["on_chip_flash_memory_used"]) + _bytes(row["off_chip_flash_memory_used"]),
            int(on_cpu[0].split()[3]) if on_cpu else 0,
        )
    except (KeyError, ValueError, IndexError) as error:
        raise LoadError(f"{TOOL}'s summary has another form: {error}", node=str(file)) from None


def write_estimates(file: Path, accelerators: Sequence[str]) -> None:
    """Write `vela.json` beside a file, with an estimate for each accelerator.

    Raises UnsupportedError, LoadError; UsageError for an unknown accelerator.
    """
    if accelerators:
        names = [chosen(Accelerator, name, "accelerator") for name in accelerators]
        found = [to_json(estimate(file, name)) for name in names]
        file.with_name(ESTIMATES).write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def read_estimates(folder: Path) -> list[VelaEstimate]:
    """The estimates of an export; none if Vela has not been run. Raises LoadError."""
    path = folder / ESTIMATES
    if not path.is_file():
        return []
    with reading(path):
        return [from_json(VelaEstimate, one) for one in json.loads(path.read_text("utf-8"))]


def _bytes(kibibytes: str) -> int:
    return round(1024 * float(kibibytes))
