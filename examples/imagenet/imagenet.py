"""The images of ImageNet as data for qgraph: ``imagenet:calibration`` and so on.

The variable IMAGENET names a directory with `train` and `val`, each with a directory for each
class, or with TFRecords (`train-*`, `validation-*`). IMAGENET_SIZE is the size of the input.

Needs: qgraph.
"""

import os
from pathlib import Path

from qgraph.train.images import Preprocessing, image_directory, image_records

SAMPLES = 512  # of calibration
FOLDER = Path(os.environ["IMAGENET"])
# As MobileNet of Keras. ResNet50: mean=(103.939, 116.779, 123.68), reverse_channels=True.
PREPROCESSING = Preprocessing(
    int(os.environ.get("IMAGENET_SIZE", "224")), mean=127.5, deviation=127.5
)


def train(epoch=None, input_context=None):
    """Training images, in another order in each epoch; of several workers, the share of one."""
    return _images("train", "train-*", epoch, input_context)


def validation():
    """Validation images, in order, in the batches that `qgraph evaluate` needs."""
    return _images("val", "validation-*", None, None).batch(64)


def calibration():
    """Some training images of all classes."""
    return _images("train", "train-*", 0, None).take(SAMPLES).batch(32)


def _images(folder, records, epoch, context):
    if (FOLDER / folder).is_dir():
        return image_directory(FOLDER / folder, PREPROCESSING, epoch=epoch, context=context)
    # Class 0 of these records is `background`.
    return image_records(
        str(FOLDER / records), PREPROCESSING, first_label=1, epoch=epoch, context=context
    )
