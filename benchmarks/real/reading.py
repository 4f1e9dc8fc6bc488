"""PP-OCRv4 on rendered text: what it reads, where it finds text, and which way up a line is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import assets
from benchmarks.real.lines import lines, pages
from benchmarks.real.measure import same_class, sqnr
from benchmarks.real.text import IMAGENET_DEVIATION, IMAGENET_MEAN
from benchmarks.real.vision_transformer import differences
from benchmarks.tables import Table
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array

PAGE, TEXT, SAME_BOX = 320, 0.3, 0.9
LEARNT = "constant-channels=0.03,equalize=noise,method=mse,reconstruct"
WAYS = (("plain", "plain", None), ("fast", "fast", None), ("plan", None, LEARNT))  # effort, plan
BATCH = 16


@dataclass(frozen=True)
class Reader:
    """A network of PP-OCR, with images to calibrate it and others for the test.

    right: the share of right answers, from outputs; None without labels. same: how much two outputs
    agree, from 0 to 1. measure, samples: both in words.
    """

    title: str
    network: Path
    calibration: Array
    test: Array
    right: Callable[[Array], float] | None
    same: Callable[[Array, Array], float]
    measure: str
    samples: str


def tables() -> Iterator[Table]:
    table = Table(
        "PP-OCRv4 on rendered text",
        {"network": "", "way": "", "right, float": ".1%", "right, 8 bits": ".1%",
         "as float": ".1%", "SQNR dB": ".1f", "differ from reference": "", "seconds": ".0f"},
        notes=["graffitist-int8: 8 bits, one power-of-two scale per tensor; integers from the "
               "first layer to the logits",
               f"plain and fast are efforts, plan is `{LEARNT}`",
               "differ: codes of the stored samples, in each form that supports the network"],
    )  # fmt: skip
    for reader in readers():
        _measure(reader, table)
    yield table


def readers() -> Iterator[Reader]:
    read, alphabet = lines(64 + 256, (48, 320), 0, (28, 37)), characters()
    texts = read.texts[64:]
    yield Reader(
        "recognizer", assets.line_recognition_network(), read.images[:64], read.images[64:],
        lambda scores: character_accuracy(decoded(scores, alphabet), texts),
        lambda found, wanted: float(
            np.mean([a == b for a, b in zip(*(decoded(v, alphabet) for v in (found, wanted)),
                                            strict=True)])
        ),
        "right: characters (1 - edit distance / length); as float: whole lines with the same text",
        "lines of 320 x 48",
    )  # fmt: skip
    images = pages(64 + 64, PAGE, 1).astype(np.float32) / np.float32(255)
    images = ((images - IMAGENET_MEAN) / IMAGENET_DEVIATION).transpose(0, 3, 1, 2)
    yield Reader(
        "detector", assets.line_detection_network(), images[:64], images[64:], None, same_boxes,
        f"as float: boxes of text (score {TEXT} or more) with a box of at least {SAME_BOX:.0%} IoU "
        "among those of the other network, of both",
        f"pages of {PAGE} x {PAGE}",
    )  # fmt: skip
    turned = lines(128 + 512, (48, 192), 2, (26, 36)).images
    upside = np.random.default_rng(3).random(len(turned)) < 0.5
    turned[upside] = turned[upside, :, ::-1, ::-1]
    answers = upside[128:].astype(int)
    yield Reader(
        "classifier", assets.line_direction_network(), turned[:128], turned[128:],
        lambda scores: float((scores.argmax(-1) == answers).mean()), same_class,
        "right and as float: lines with the answer upright or upside down", "lines of 192 x 48",
    )  # fmt: skip


def _measure(reader: Reader, table: Table) -> None:
    (shape,) = {reader.test.shape[1:]}
    model = load(reader.network, input_shapes={"x": (None, *shape)})
    wanted = _outputs(model, reader.test)
    table.notes.append(
        f"{reader.title}: {len(reader.calibration)} {reader.samples} to calibrate, "
        f"{len(reader.test)} others; {reader.measure}"
    )
    for way, effort, plan in WAYS:
        start = time.perf_counter()
        made = quantize(model, reader.calibration, effort=effort, plan=plan)
        seconds = time.perf_counter() - start
        found = _outputs(made.graph, reader.test)
        right = [None if reader.right is None else reader.right(v) for v in (wanted, found)]
        table.add(
            reader.title, way, *right, reader.same(found, wanted), sqnr(wanted, found),
            differences(made), seconds,
        )  # fmt: skip


def _outputs(graph: Graph, images: Array) -> Array:
    (name,), (output,) = graph.inputs, graph.outputs
    parts = range(0, len(images), BATCH)
    return np.concatenate([evaluate(graph, {name: images[i : i + BATCH]})[output] for i in parts])


def characters() -> Sequence[str]:
    """The characters of the recognizer by class; the first one is the blank of CTC."""
    import onnx

    model = onnx.load(assets.line_recognition_network(), load_external_data=False)
    (listed,) = (entry.value for entry in model.metadata_props if entry.key == "character")
    return ["", *listed.splitlines(), " "]


def decoded(scores: Array, alphabet: Sequence[str]) -> list[str]:
    """The text of each line: the best class of each step, without repetitions and blanks."""
    found = []
    for best in scores.argmax(-1):
        changed = np.flatnonzero(np.diff(best, prepend=-1))
        found.append("".join(alphabet[best[i]] for i in changed))
    return found


def character_accuracy(found: Sequence[str], wanted: Sequence[str]) -> float:
    """1 - edit distance / length, over all lines."""
    wrong = sum(edit_distance(a, b) for a, b in zip(found, wanted, strict=True))
    return 1 - wrong / sum(map(len, wanted))


def edit_distance(a: str, b: str) -> int:
    """The least number of characters to insert, remove or replace."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, start=1):
        above, row[0] = row[0], i
        for j, right in enumerate(b, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (left != right))
    return row[-1]


def same_boxes(found: Array, wanted: Array) -> float:
    """Boxes of both that have a counterpart in the other, of the boxes of both."""
    matched = total = 0
    for ours, theirs in zip(found, wanted, strict=True):
        first, second = boxes(ours[0]), boxes(theirs[0])
        for box, others in [*((b, second) for b in first), *((b, first) for b in second)]:
            total += 1
            matched += any(overlap(box, other) >= SAME_BOX for other in others)
    return matched / max(total, 1)


Box = tuple[int, int, int, int]  # top, bottom, left, right


def boxes(scores: Array) -> list[Box]:
    """The boxes around connected pixels of text."""
    from scipy import ndimage

    labels, _ = ndimage.label(scores >= TEXT)
    return [
        (rows.start, rows.stop, columns.start, columns.stop)
        for rows, columns in ndimage.find_objects(labels)
        if (rows.stop - rows.start) * (columns.stop - columns.start) >= SMALLEST
    ]


SMALLEST = 9  # pixels of a box; PP-OCR drops boxes with a side below 3


def overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    height = min(a[1], b[1]) - max(a[0], b[0])
    width = min(a[3], b[3]) - max(a[2], b[2])
    shared = max(height, 0) * max(width, 0)
    areas = [(box[1] - box[0]) * (box[3] - box[2]) for box in (a, b)]
    return shared / (sum(areas) - shared)
