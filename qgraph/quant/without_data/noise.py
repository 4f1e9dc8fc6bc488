"""Noise with the spectrum of images: fields of blocks with different sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qgraph.ir.types import Array, Shape


def scales_of(shape: Shape) -> list[int]:
    """Sizes of the blocks of noise fields, in positions."""
    largest = max((int(d or 1) for d in shape[1:-1]), default=1)
    return [1 << i for i in range(largest.bit_length())]


def fields_of(shape: Shape, count: int, rng: np.random.Generator) -> Iterator[Array]:
    """Noise with deviation 1 for an input of `shape`, one float32 array [count, ...] per field.

    For each block size, first a grey field with the same number in all channels, then a field
    with independent channels.
    """
    sizes, channels = [int(d or 1) for d in shape[1:-1]], int(shape[-1] or 1)
    for grey in (True, False):
        for block in scales_of(shape):
            coarse = [-(-size // block) + 1 for size in sizes]
            field = rng.standard_normal((count, *coarse, 1 if grey else channels))
            for axis, size in enumerate(sizes, start=1):
                start = int(rng.integers(block))
                field = np.repeat(field, block, axis=axis)
                field = np.take(field, range(start, start + size), axis=axis)
            yield np.broadcast_to(field, (count, *sizes, channels)).astype(np.float32)
