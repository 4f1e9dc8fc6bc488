"""Fashion-MNIST in parts that are kept apart: training, validation, calibration, test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks import assets
from qgraph.ir.types import Array

TRAINING, CALIBRATION = 50_000, 512


@dataclass(frozen=True)
class Part:
    """Images, float32 [n, 28, 28, 1] in [0, 1], and their classes, int64 [n]."""

    images: Array
    labels: Array


@dataclass(frozen=True)
class Split:
    """50,000 images to train, 10,000 to choose by, 10,000 to report on."""

    training: Part
    validation: Part
    test: Part

    @property
    def calibration(self) -> Array:
        """The first of the training images, as files have them: in no order."""
        return self.training.images[:CALIBRATION]


def fashion_mnist() -> Split:
    """All of Fashion-MNIST; validation is the last of its training images."""
    images, labels = assets.fashion_mnist_train()
    return Split(
        _part(images[:TRAINING], labels[:TRAINING]),
        _part(images[TRAINING:], labels[TRAINING:]),
        _part(*assets.fashion_mnist_test()),
    )


def _part(images: assets.Images, labels: assets.Labels) -> Part:
    return Part(images.astype(np.float32) / np.float32(255), labels)
