"""Images in separate parts: training (which includes calibration), validation, test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks import assets
from qgraph.ir.types import Array

VALIDATION, CALIBRATION = 10_000, 512

Labelled = tuple[assets.Images, assets.Labels]


@dataclass(frozen=True)
class Part:
    """Images, float32 [n, height, width, channels], and their classes, int64 [n]."""

    images: Array
    labels: Array

    def first(self, count: int) -> Part:
        return Part(self.images[:count], self.labels[:count])


@dataclass(frozen=True)
class Split:
    """Training images, 10,000 images to choose checkpoints by, and 10,000 to report on."""

    training: Part
    validation: Part
    test: Part

    @property
    def calibration(self) -> Array:
        """The first of the training images, which files have in random order."""
        return self.training.images[:CALIBRATION]


def fashion_mnist() -> Split:
    """All of Fashion-MNIST, in [0, 1]."""
    return _split(assets.fashion_mnist_train(), assets.fashion_mnist_test(), 255)


def cifar10(divisor: int = 1) -> Split:
    """All of CIFAR-10; pixels are 0 to 255, divided by `divisor`."""
    return _split(assets.cifar10_train(), assets.cifar10_test(), divisor)


def _split(known: Labelled, test: Labelled, divisor: int) -> Split:
    """Split the images. Validation is the last part of the training images."""
    images, labels = known
    return Split(
        _part((images[:-VALIDATION], labels[:-VALIDATION]), divisor),
        _part((images[-VALIDATION:], labels[-VALIDATION:]), divisor),
        _part(test, divisor),
    )


def _part(part: Labelled, divisor: int) -> Part:
    images, labels = part
    return Part(images.astype(np.float32) / np.float32(divisor), labels)
