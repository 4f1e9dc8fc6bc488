"""Draw the figures: ``python -m benchmarks.figures --out build/figures``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.figures.landscape import figure7
from benchmarks.figures.oscillation import figure9
from benchmarks.figures.style import save
from benchmarks.figures.tradeoff import figure2
from benchmarks.figures.training import figure8
from benchmarks.figures.transfer import figure1, figure3

FIGURES: dict[str, Callable[[], Figure]] = {
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
    parser.add_argument("--only", choices=FIGURES, action="append", help="draw this one")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only or FIGURES:
        path = options.out / f"{name}.png"
        save(FIGURES[name](), path)
        print(path)


if __name__ == "__main__":
    main()
