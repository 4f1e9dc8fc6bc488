"""The main job on a small real network: quantize it, then compare it with float.

python examples/digits/demo.py [OUTPUT_DIRECTORY]

Needs: qgraph, scikit-learn (`pip install scikit-learn`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from data import load_digits_split

from qgraph.backends.tf.program import TFProgram
from qgraph.cli.console import console, print_table
from qgraph.quiet import import_tensorflow_quietly

HERE = Path(__file__).parent
MODEL = HERE / "digits.pb"


def accuracy(model: Path, images: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    classes = TFProgram(model).predict("image", images, "probabilities").argmax(axis=1)
    return float((classes == labels).mean()), classes


def main() -> None:
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "out"
    split = load_digits_split()
    calibration = output.with_name(output.name + "-calibration.npz")
    np.savez(calibration, image=split.train.images[:64])
    command = [
        "qgraph",
        "quantize",
        str(MODEL),
        "-c",
        str(calibration),
        "-o",
        str(output),
        "--force",
    ]
    console().print(f"$ {' '.join(command)}", style="bold", soft_wrap=True)
    subprocess.run([str(Path(sys.executable).with_name("qgraph")), *command[1:]], check=True)

    import_tensorflow_quietly()
    exact, wanted = accuracy(MODEL, *split.test)
    ours, found = accuracy(output / "inference.pb", *split.test)
    print_table(
        f"{len(wanted)} test images, used neither to train nor to calibrate",
        ("=network", ">accuracy", "file"),
        [
            ("float32", f"{exact:.2%}", str(MODEL)),
            ("int8", f"{ours:.2%}", str(output / "inference.pb")),
        ],
    )
    console().print(f"same class as float on {(wanted == found).mean():.2%}")


if __name__ == "__main__":
    main()
