"""scikit-learn's handwritten digits, split the same way for everyone.

Needs: scikit-learn (`pip install scikit-learn`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SEED = 2020
TEST, VALIDATION = 450, 180  # a quarter and a tenth of the 1,797 images


class Part(NamedTuple):
    """Images, float32 [n, 8, 8, 1] in [0, 1], and their digits, int64 [n]."""

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]


class Split(NamedTuple):
    """Three parts with no image in common."""

    train: Part
    validation: Part
    test: Part


def load_digits_split() -> Split:
    """The digits in a fixed random order, cut into train, validation and test."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    images = (digits.images[order, :, :, np.newaxis] / 16.0).astype(np.float32)
    labels = digits.target[order].astype(np.int64)

    def part(start: int, stop: int | None) -> Part:
        return Part(images[start:stop], labels[start:stop])

    return Split(
        train=part(TEST + VALIDATION, None),
        validation=part(TEST, TEST + VALIDATION),
        test=part(0, TEST),
    )
