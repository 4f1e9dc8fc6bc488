"""Advice on common mistakes with samples: wrong order of axes, images instead of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod
from pathlib import Path

from qgraph.ir.types import Shape

IMAGES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
MAX_CHECKED_FILES = 1000  # largest number of files of a directory to check

PREPARE = (
    "read and prepare the images as for training, then save arrays with numpy.savez(FILE, "
    "NAME_OF_INPUT=array), or name a function that returns them: module:function"
)


def shape_advice(given: Sequence[int], wanted: Shape) -> str:
    """Advice on an array of shape `given` for an input of shape `wanted`.

    `wanted` begins with the batch; None is an open size.
    """
    sizes = ", ".join("any" if size is None else str(size) for size in wanted[1:])
    return f"give an array of shape (samples, {sizes}){_remedy(tuple(given), wanted)}"


def _remedy(given: tuple[int, ...], wanted: Shape) -> str:
    """The expression that makes the array fit, and what is wrong; empty if there is none."""
    rank = len(wanted)
    if len(given) == rank - 1 and _fits(given, wanted[1:]):
        return ": this is one sample, array[None] makes a batch of it"
    if len(given) == rank >= 3:
        _, *sizes = given
        if _fits((*sizes[1:], sizes[0]), wanted[1:]):
            return ": channels come last here, numpy.moveaxis(array, 1, -1) moves them"
        if _fits((sizes[-1], *sizes[:-1]), wanted[1:]):
            return ": channels come first here, numpy.moveaxis(array, -1, 1) moves them"
    if len(given) == rank - 1:
        for axis in range(1, rank):
            if wanted[axis] == 1 and _fits((*given[1:axis], 1, *given[axis:]), wanted[1:]):
                return f": numpy.expand_dims(array, {axis}) adds the axis of size 1"
    known = [size for size in wanted[1:] if size is not None]
    if len(known) == rank - 1 and given and prod(given[1:]) == prod(known):
        return f": array.reshape({', '.join(map(str, (-1, *known)))}) fits, if the order is right"
    return ""


def _fits(given: Sequence[int], wanted: Shape) -> bool:
    return len(given) == len(wanted) and all(
        size is None or size == found for found, size in zip(given, wanted, strict=True)
    )


def is_image(path: Path) -> bool:
    """Whether the name of a file is that of an image."""
    return path.suffix.lower() in IMAGES


def holds_images(folder: Path) -> bool:
    """Whether a directory contains an image, at any depth."""
    return any(map(is_image, islice(folder.rglob("*"), MAX_CHECKED_FILES)))
