"""Topics of calibration images: how many, and which."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic, first_table

OVER = "over float"


def _mean_of_families(result: Result, count: int) -> float:
    """Points over float, the mean of the six families; the other network is not one of them."""
    rows = result.tables[0].where(images=count).rows
    found = [row[OVER] for row in rows if row["network"] != "cifar_10_model"]
    return float(sum(found) / len(found))


def _few_and_many(result: Result) -> str:
    counts = sorted({row["images"] for row in result.tables[0].rows})
    means = [f"{_mean_of_families(result, n):+.2f} with {n:,} images" for n in counts]
    return f"points over float, mean of the six families: {', '.join(means)}"


IMAGES_AT_4_BITS = Topic(
    "images_at_4_bits",
    "Weights of 4 bits by calibration images",
    _few_and_many,
    "graffitist-int4, effort `default`; 10,000 test images",
    first_table,
    lambda result: result.tables[0].pivot("network", "images", OVER),
    Bars("points of accuracy over float", line=0.0),
)

TOPICS = (IMAGES_AT_4_BITS,)
