"""Draw the figures: ``python -m benchmarks.figures --out build/figures [--run out/]``.

Figures 5, 6 and 10 show training runs, the others the quantizer alone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.figures.landscape import figure7
from benchmarks.figures.oscillation import figure9
from benchmarks.figures.style import save
from benchmarks.figures.tradeoff import figure2
from benchmarks.figures.training import figure8
from benchmarks.figures.transfer import figure1, figure3

Drawn = Callable[[], Figure]
FIGURES: dict[str, Drawn] = {
    "figure1": figure1,
    "figure2": figure2,
    "figure3": figure3,
    "figure7": figure7,
    "figure8": figure8,
    "figure9": figure9,
}


def main(arguments: list[str] | None = None) -> None:
    """Write each figure as a PNG file, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/figures"), help="folder to write")
    parser.add_argument("--only", metavar="NAME", action="append", help="draw this, as figure7")
    parser.add_argument(
        "--run", type=Path, action="append", help="draw what this directory of `qgraph train` has"
    )
    parser.add_argument("--data", help="with --run: what it learned from, as in `qgraph train`")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, draw in (of_runs(options.run, options.data) if options.run else FIGURES).items():
        if options.only and name.split("-")[0] not in options.only:
            continue
        path = options.out / f"{name}.png"
        save(draw(), path)
        print(path)


def of_runs(paths: list[Path], data: str | None) -> dict[str, Drawn]:
    """The figures of training runs: figure 6 for all runs, 5 and 10 for each."""
    from benchmarks.figures.deviations import figure6
    from benchmarks.figures.distributions import figure5, figure10
    from benchmarks.figures.run import load_run

    runs = [load_run(path) for path in paths]
    made: dict[str, Drawn] = {"figure6": partial(figure6, runs, data)}
    for run in runs:
        made[f"figure5-{run.name}"] = partial(figure5, run)
        made[f"figure10-{run.name}"] = partial(figure10, run)
    return made


if __name__ == "__main__":
    main()
