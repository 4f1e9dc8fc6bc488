"""Sorts validation images into a directory for each class.

python prepare.py ILSVRC2012_img_val LOC_val_solution.csv IMAGENET/val

The second argument is the list of classes from the competition's page on Kaggle: lines such as
`ILSVRC2012_val_00048981,n03995372 85 1 499 272`. Images are linked, not copied.

Needs: Python only.
"""

import csv
import sys
from pathlib import Path


def main(images: str, solution: str, target: str) -> None:
    """Link each image of a directory into the directory of its class."""
    with open(solution, newline="") as file:
        rows = csv.DictReader(file)
        classes = {row["ImageId"]: row["PredictionString"].split()[0] for row in rows}
    for image in sorted(Path(images).iterdir()):
        folder = Path(target) / classes[image.stem]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / image.name).symlink_to(image.resolve())
    print(f"{len(classes)} images of {len(set(classes.values()))} classes")


if __name__ == "__main__":
    main(*sys.argv[1:])
