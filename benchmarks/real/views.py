"""Many views of few photos, with errors that account for the dependence between views of a
photo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import assets
from qgraph.ir.types import Array

SIZE = 224
# The sides of crops as shares of the central square: at the centre and at four corners.
SIDES = (0.875, 0.75, 0.6)
VIEWS = 2 * (1 + 5 * len(SIDES))  # also the whole square, and all of them mirrored
DRAWS = 10_000


@dataclass(frozen=True)
class Views:
    """Views of photos, `VIEWS` each, in order: images [n, 224, 224, 3] in -1 to 1, and classes
    [n] of 1000 where photos have one.
    """

    images: Array
    classes: Array | None = None

    @property
    def photos(self) -> int:
        return len(self.images) // VIEWS


def labelled() -> Views:
    """Foolbox's 20 ImageNet photos."""
    paths = assets.imagenet_files()
    classes = [int(path.stem.rsplit("_", 1)[1]) for path in paths]
    return Views(_seen(paths), np.repeat(np.array(classes, np.int64), VIEWS))


def others() -> Views:
    """Photos without a class, which are used to choose settings."""
    return Views(_seen(assets.other_photos()))


def _seen(paths: Sequence[Path]) -> Array:
    from PIL import Image

    images = []
    for path in paths:
        with Image.open(path) as photo:
            images += [np.asarray(view) for view in views(photo.convert("RGB"))]
    return np.stack(images).astype(np.float32) / np.float32(127.5) - np.float32(1)


def views(photo: Any) -> Iterator[Any]:
    """The whole central square of a PIL image, then crops of it, each unchanged and mirrored."""
    from PIL import Image, ImageOps

    square = ImageOps.fit(photo, (min(photo.size),) * 2)
    for box in _boxes(square.width):
        view = square.resize((SIZE, SIZE), Image.Resampling.BICUBIC, box=box)
        yield view
        yield ImageOps.mirror(view)


def _boxes(side: int) -> Iterator[tuple[float, float, float, float]]:
    yield 0, 0, side, side
    for share in SIDES:
        left = side * (1 - share)
        for x, y in ((left / 2, left / 2), (0, 0), (left, 0), (0, left), (left, left)):
            yield x, y, x + side * share, y + side * share


@dataclass(frozen=True)
class Share:
    """A share of views, and its standard error over photos."""

    value: float
    error: float

    @property
    def percent(self) -> list[float]:
        """The share and its error in percent."""
        return [100 * self.value, 100 * self.error]


@dataclass(frozen=True)
class Shares:
    """Shares of views, with errors by the bootstrap over photos."""

    photos: int

    def of(self, hits: Array, counted: Array | None = None) -> Share:
        """The share of hits among the counted views. hits, counted: bool [views]."""
        return self._resampled(lambda h, c: h / c, hits, counted)

    def between(self, hits: Array, theirs: Array, counted: Array | None = None) -> Share:
        """The difference between two shares of the same views, photo by photo."""
        return self._resampled(lambda h, c: h / c, hits.astype(int) - theirs, counted)

    def _resampled(
        self, share: Callable[[Any, Any], Any], hits: Array, counted: Array | None
    ) -> Share:
        weight = np.ones(len(hits)) if counted is None else counted.astype(float)
        h, c = ((v.reshape(self.photos, -1)).sum(1) for v in (hits * weight, weight))
        drawn = np.random.default_rng(0).integers(0, self.photos, (DRAWS, self.photos))
        error = np.std(share(h[drawn].sum(1), c[drawn].sum(1)))
        return Share(float(share(h.sum(), c.sum())), float(error))
