"""The digits network and its data as files, for the commands of README.md and docs/guides/.

python examples/digits/files.py [DIRECTORY]

Needs: scikit-learn (`pip install scikit-learn`).

Writes `model.pb`, and images with labels in `calib.npz`, `train.npz`, `val.npz` and `test.npz`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from data import Part, load_digits_split

CALIBRATION = 256


def write(folder: Path) -> None:
    """Write the network and its data to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).with_name("digits.pb"), folder / "model.pb")
    train, validation, test = load_digits_split()
    calibration = Part(train.images[:CALIBRATION], train.labels[:CALIBRATION])
    parts = {"calib": calibration, "train": train, "val": validation, "test": test}
    for name, part in parts.items():
        np.savez(folder / f"{name}.npz", image=part.images, labels=part.labels)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
