"""Topics of learning in float16: its memory and its time."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic

PARTS = ("parameters", "average", "optimizer", "activations", "for actors")


def _less(result: Result, learner: str) -> str:
    return f"{result.tables[0].row(learner=learner)['less']:.2f}"


FLOAT16_MEMORY = Topic(
    "float16_memory",
    "Memory of SAC in float16",
    lambda result: (
        f"with all six methods a learner keeps {_less(result, 'states, all')} times less on "
        f"states, {_less(result, 'images, all')} times less on images"
    ),
    "counted from variables and shapes: two layers of 1024; states with batches of 1024, images of "
    "84 x 84 x 9 with batches of 512",
    lambda result: result.tables[0],
    lambda result: result.tables[0].only("learner", *PARTS),
    Bars("MB", stacked=True),
)


def _times(result: Result, learner: str) -> str:
    return f"{result.tables[0].row(learner=learner)['times quicker']:.2f}"


FLOAT16_SPEED = Topic(
    "float16_speed",
    "Time of a step of SAC in float16",
    lambda result: (
        f"a step in float16 is {_times(result, 'states, all')} times as quick as in float32 on "
        f"states, {_times(result, 'images, all')} times on images"
    ),
    "a Xeon with AVX-512 FP16, two cores, TensorFlow 2.21; no GPU",
    lambda result: result.tables[0],
    lambda result: result.tables[0].only("learner", "ms"),
    Bars("ms of a step", log=True),
)

TOPICS = (FLOAT16_MEMORY, FLOAT16_SPEED)
