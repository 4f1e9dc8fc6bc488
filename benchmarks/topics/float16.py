"""Topics of learning in float16: its memory and its time."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic, first_table

PARTS = ("parameters", "average", "optimizer", "activations", "for actors")


def _factors(result: Result, column: str) -> tuple[str, str]:
    """The improvement by all methods together, on states and on images."""
    rows = (result.tables[0].row(learner=f"{kind}, all") for kind in ("states", "images"))
    states, images = (f"{row[column]:.2f}" for row in rows)
    return states, images


FLOAT16_MEMORY = Topic(
    "float16_memory",
    "Memory of SAC in float16",
    lambda result: (
        "with all six methods a learner keeps {} times less on states, {} times less on "
        "images".format(*_factors(result, "less"))
    ),
    "counted from variables and shapes: two layers of 1024; states with batches of 1024, images of "
    "84 x 84 x 9 with batches of 512",
    first_table,
    lambda result: result.tables[0].only("learner", *PARTS),
    Bars("MB", stacked=True),
)


FLOAT16_SPEED = Topic(
    "float16_speed",
    "Time of a step of SAC in float16",
    lambda result: (
        "a step in float16 is {} times as quick as in float32 on states, {} times on images".format(
            *_factors(result, "times quicker")
        )
    ),
    "a Xeon with AVX-512 FP16, two cores, TensorFlow 2.21; no GPU",
    first_table,
    lambda result: result.tables[0].only("learner", "ms"),
    Bars("ms of a step", log=True),
)

TOPICS = (FLOAT16_MEMORY, FLOAT16_SPEED)
