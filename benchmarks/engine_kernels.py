"""Time the integer engine's kernels, layer by layer: ``python -m benchmarks.engine_kernels``.

It builds fused_ops/benchmarks/engine_kernels.cpp (with cmake and a C++ compiler) and runs it: all
convolutions of MobileNetV1 and ResNet50 on one thread, with the stages of profile graffitist,
beside a loop that only multiplies and adds. Times are the shortest of many rounds, which other
programs affect least.
"""

from __future__ import annotations

import argparse
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.kernels import NATIVE_LEVELS

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Timing:
    """One layer: its number in the network, its multiply-adds, and the seconds of one run."""

    network: str
    layer: str
    times: int
    macs: float
    seconds: float


def built(folder: Path) -> Path:
    """Build the benchmark's program in `folder`."""
    target = "engine_kernels_bench"
    at = str(folder)
    for options in (
        ["-S", str(ROOT), "-B", at, "-DQGRAPH_NATIVE_TESTS=ON"],
        ["--build", at, "--target", target, "-j", "2"],
    ):
        subprocess.run(["cmake", *options], check=True, stdout=subprocess.DEVNULL)
    return folder / target


def timings(program: Path, rounds: int, level: str | None) -> list[Timing]:
    """The timings that the program prints. The first is that of the loop that multiplies and
    adds.
    """
    command = [str(program), str(rounds)] + (
        [] if level is None else [str(NATIVE_LEVELS.index(level))]
    )
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = (line.split("\t") for line in printed.splitlines())
    return [Timing(a, b, int(c), float(d), float(e)) for a, b, c, d, e in rows]


def main() -> None:
    """Print a row for each layer, and the sums of each network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--level", choices=NATIVE_LEVELS, help="default: the best that the CPU has")
    parser.add_argument("--build", type=Path, default=ROOT / "build/bench")
    add_json_option(parser)
    given = parser.parse_args()
    peak, *layers = timings(built(given.build), given.rounds, given.level)
    best = peak.macs / peak.seconds
    loop = f"; the loop of 512 bits: {best / 1e9:.0f}" if best else ""
    table = Table(
        f"{given.level or 'best level'}, one thread, GMAC/s{loop}",
        {"network": "", "layer": "", "times": "d", "us": ".1f", "GMAC/s": ".0f",
         "of the loop": ".0%"},
    )  # fmt: skip
    seconds: dict[str, float] = defaultdict(float)
    macs: dict[str, float] = defaultdict(float)
    for t in layers:
        seconds[t.network] += t.times * t.seconds
        macs[t.network] += t.times * t.macs
        add(table, t.network, t.layer, t.times, t.seconds, t.macs, best)
    for network in seconds:
        add(table, network, "all", None, seconds[network], macs[network], best)
    report("benchmarks.engine_kernels", [table], given.json)


def add(
    table: Table,
    network: str,
    layer: str,
    times: int | None,
    seconds: float,
    macs: float,
    best: float,
) -> None:
    """Add a row for a layer, or for the sum of a network."""
    rate = macs / seconds
    table.add(network, layer, times, seconds * 1e6, rate / 1e9, rate / best if best else None)


if __name__ == "__main__":
    main()
