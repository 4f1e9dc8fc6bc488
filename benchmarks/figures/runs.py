"""Make training runs to draw: ``python -m benchmarks.figures.runs --out build/runs``.

The families of `benchmarks.families` are trained with 8 and 4 bits, by the paper's schedule
(batches of 24). The directory of each run is that of `qgraph quantize --mode retrain` and `qgraph
train`. Existing runs are kept; a run that was killed continues.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.families.data import Part, Split, fashion_mnist
from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import path_of
from qgraph import retrain
from qgraph.compiler import quantize
from qgraph.ir.types import Array
from qgraph.train.options import Options

PROFILES = {"int8": "graffitist-int8", "int4": "graffitist-int4"}
OPTIONS = Options(epochs=2, batch_size=24, weight_rate=3e-5, seed=1)


def train(name: str, bits: str, data: Split, out: Path) -> Path:
    """Train one run to its end."""
    path = out / f"{name}-{bits}"
    if not path.exists():
        made = quantize(
            path_of(name), data.calibration, profile=PROFILES[bits], mode="retrain", effort="plain"
        )
        retrain.save(made, path)
    retrain.train(path, arrays(data.training), arrays(data.validation), OPTIONS)
    return path


def arrays(part: Part) -> tuple[Array, Array]:
    """Images and labels in the form that training takes."""
    return part.images, part.labels


def training() -> tuple[Array, Array]:
    """The training data of runs: `--data benchmarks.figures.runs:training`."""
    return arrays(fashion_mnist().training)


def main() -> None:
    """Train, and print the directories."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/runs"), help="folder to write")
    parser.add_argument("--only", choices=FAMILIES, action="append", help="train this one")
    options = parser.parse_args()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    retrain.make_deterministic()
    options.out.mkdir(parents=True, exist_ok=True)
    data = fashion_mnist()
    for name in options.only or FAMILIES:
        for bits in PROFILES:
            print(train(name, bits, data, options.out), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
