"""Rendered text with its words: single lines and whole pages, in three families of fonts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qgraph.ir.types import Array

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

FONTS = ("DejaVuSans.ttf", "DejaVuSerif.ttf", "STIXGeneral.ttf")
NOISE = 0.03  # of pixels from -1 to 1


@dataclass(frozen=True)
class Lines:
    """Images of lines, float32 [n, 3, height, width] from -1 to 1, and the text of each."""

    images: Array
    texts: Sequence[str]


def lines(count: int, size: tuple[int, int], seed: int, points: tuple[int, int]) -> Lines:
    """One to four words each, on coloured paper; the rest of the width is 0.

    size: height and width of an image. points: the smallest and the largest size of letters.
    """
    rng = np.random.default_rng(seed)
    made = [_line(rng, *size, points) for _ in range(count)]
    return Lines(np.stack([image for image, _ in made]), [text for _, text in made])


def pages(count: int, side: int, seed: int) -> Array:
    """Pages with a few lines of words each, uint8 [n, side, side, 3]."""
    rng = np.random.default_rng(seed)
    return np.stack([_page(rng, side) for _ in range(count)])


def _line(
    rng: np.random.Generator, height: int, width: int, points: tuple[int, int]
) -> tuple[Array, str]:
    from PIL import Image, ImageDraw

    text, font = _words(rng, width - 20, points)
    paper, ink = rng.integers(170, 256, 3), rng.integers(0, 100, 3)
    image = Image.new("RGB", (width, height), tuple(paper.tolist()))
    place = (6 + int(rng.integers(-3, 4)), height // 2 + int(rng.integers(-2, 3)))
    ImageDraw.Draw(image).text(place, text, font=font, fill=tuple(ink.tolist()), anchor="lm")
    pixels = np.asarray(image, np.float32) / np.float32(127.5) - 1
    pixels = (pixels + rng.normal(0, NOISE, pixels.shape)).astype(np.float32)
    pixels[:, int(font.getlength(text)) + 12 :] = 0
    return pixels.transpose(2, 0, 1), text


def _page(rng: np.random.Generator, side: int) -> Array:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (side, side), tuple(rng.integers(170, 256, 3).tolist()))
    pen, top = ImageDraw.Draw(image), int(rng.integers(8, 30))
    while top < side - 34:
        text, font = _words(rng, side - 20, (14, 26))
        left = int(rng.integers(8, side - 8 - int(font.getlength(text))))
        pen.text((left, top), text, font=font, fill=tuple(rng.integers(0, 100, 3).tolist()))
        top += int(font.size) + int(rng.integers(12, 30))
    return np.asarray(image)


def _words(
    rng: np.random.Generator, width: int, points: tuple[int, int]
) -> tuple[str, FreeTypeFont]:
    """Words in a row that fit `width`, and their font."""
    known = known_words()
    while True:
        first, count = int(rng.integers(len(known) - 4)), int(rng.integers(1, 5))
        text = " ".join(known[first : first + count])
        font = _font(FONTS[rng.integers(len(FONTS))], int(rng.integers(points[0], points[1] + 1)))
        if len(text) > 1 and font.getlength(text) < width:
            return text, font


@cache
def known_words() -> Sequence[str]:
    """The words of Python's own help texts, in order."""
    from pydoc_data.topics import topics

    return re.findall(r"[A-Za-z0-9]+[,.]?", " ".join(topics[key] for key in sorted(topics)))


@cache
def _font(name: str, points: int) -> FreeTypeFont:
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(
        str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), points
    )
