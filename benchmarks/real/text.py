"""Networks for text on rendered text, by effort: detection, direction of lines and of pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import assets
from benchmarks.real.by_effort import Experiment, by_effort
from benchmarks.real.measure import same_class
from benchmarks.tables import Table
from qgraph.ir.types import Array

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789   "
TEXT = 0.3  # the score above which a pixel counts as text, as in PP-OCR
DETECTED = 160, 320  # pixels of the height and the width of pictures to detect text in
PAGE = 320  # pixels of each side of a page
IMAGENET_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
IMAGENET_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def tables() -> Iterator[Table]:
    yield by_effort("Networks for text on rendered text", experiments())


def experiments() -> Iterator[Experiment]:
    pages = pictures(128, DETECTED)
    yield Experiment(
        "PP-OCR detection", assets.text_detection_network, pages[:96], pages[96:], _overlap,
        f"shared pixels of text among all pixels of text (score {TEXT} or more)",
        "images of 320 x 160",
    )  # fmt: skip
    lines = lines_turned(640, seed=1)
    yield Experiment(
        "PP-OCR direction", assets.text_direction_network, lines[:128], lines[128:], same_class,
        "images with the same answer", "images of 192 x 48",
    )  # fmt: skip

    documents = pages_turned(320, seed=3)
    yield Experiment(
        "OriNet orientation", assets.page_orientation_network, documents[:64], documents[64:],
        same_class, "pages with the same answer", f"images of {PAGE} x {PAGE}",
    )  # fmt: skip


def _overlap(found: Array, wanted: Array) -> float:
    ours, theirs = found >= TEXT, wanted >= TEXT
    return float((ours & theirs).sum() / (ours | theirs).sum())


def pictures(count: int, size: tuple[int, int], seed: int = 0) -> Array:
    """Lines of random letters in the fonts of matplotlib, float32 [n, 3, height, width]."""
    rng = np.random.default_rng(seed)
    return np.stack([_picture(rng, *size) for _ in range(count)])


def _picture(rng: np.random.Generator, height: int, width: int) -> Array:
    from PIL import Image, ImageDraw, ImageFont

    paper = rng.integers(150, 256, 3)
    image = Image.new("RGB", (width, height), tuple(paper.tolist()))
    pen, fonts, top = ImageDraw.Draw(image), _fonts(), int(rng.integers(2, 10))
    while top < height - 12:
        points = int(rng.integers(10, 24))
        font = ImageFont.truetype(fonts[rng.integers(len(fonts))], points)
        text = "".join(rng.choice(list(LETTERS), rng.integers(3, 20)))
        ink, left = tuple(rng.integers(0, 110, 3).tolist()), int(rng.integers(0, 60))
        pen.text((left, top), text, font=font, fill=ink)
        top += points + int(rng.integers(4, 24))
    pixels = np.asarray(image, np.float32) / np.float32(127.5) - 1
    noisy = pixels + rng.normal(0, 0.02, pixels.shape)
    return noisy.transpose(2, 0, 1).astype(np.float32)


def lines_turned(count: int, seed: int) -> Array:
    """Pictures of 48 x 192 pixels, half of them turned by 180 degrees."""
    lines = pictures(count, (48, 192), seed)
    turned = np.random.default_rng(seed + 1).random(len(lines)) < 0.5
    lines[turned] = lines[turned, :, ::-1, ::-1]
    return lines


def pages_turned(count: int, seed: int) -> Array:
    """White pages with black lines of letters, each turned by 0, 90, 180 or 270 degrees.

    float32 [n, 3, 320, 320], less the mean and divided by the deviation of ImageNet.
    """
    rng = np.random.default_rng(seed)
    turned = [np.rot90(_page(rng), -turns) for turns in rng.integers(0, 4, count)]
    pixels = np.stack(turned).astype(np.float32) / np.float32(255)
    return ((pixels - IMAGENET_MEAN) / IMAGENET_DEVIATION).transpose(0, 3, 1, 2)


def _page(rng: np.random.Generator) -> Array:
    from PIL import Image, ImageDraw, ImageFont

    image, fonts = Image.new("RGB", (PAGE, PAGE), "white"), _fonts()
    pen, points = ImageDraw.Draw(image), int(rng.integers(9, 16))
    font = ImageFont.truetype(fonts[rng.integers(len(fonts))], points)
    left, top = int(rng.integers(10, 40)), int(rng.integers(10, 30))
    while top < PAGE - 20:
        text = "".join(rng.choice(list(LETTERS), rng.integers(10, 32)))
        pen.text((left, top), text, font=font, fill="black")
        top += points + int(rng.integers(3, 12))
    return np.asarray(image)


def _fonts() -> list[str]:
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return sorted(str(path) for path in folder.glob("DejaVu*.ttf") if "Display" not in path.name)
