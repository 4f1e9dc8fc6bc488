"""All topics, and the generated parts of their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from benchmarks.result import ROOT, read
from benchmarks.topics import (
    aarch64,
    actors,
    calibration,
    compiler,
    engine,
    float16,
    forms,
    kernels,
    learning,
    microcontrollers,
    mutation,
    networks,
    plans,
    policies,
    search,
    training,
)
from benchmarks.topics.figures import figure
from benchmarks.topics.topic import Topic, generated, index_table

TOPICS: tuple[Topic, ...] = (
    *networks.TOPICS,
    *search.TOPICS,
    *calibration.TOPICS,
    *plans.TOPICS,
    *policies.TOPICS,
    *training.TOPICS,
    *engine.TOPICS,
    *forms.TOPICS,
    *aarch64.TOPICS,
    *microcontrollers.TOPICS,
    *compiler.TOPICS,
    *mutation.TOPICS,
    *kernels.TOPICS,
    *actors.TOPICS,
    *learning.TOPICS,
    *float16.TOPICS,
)


def _of(topic: Topic) -> str:
    return generated(topic, read(topic.name))


def _index() -> str:
    return index_table({topic: read(topic.name) for topic in TOPICS})


# The file and the table that pages outside docs/results show, by the name of the marker.
OTHERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "ONNX node tests": ("onnx_nodes", "ONNX's node tests"),
        "mutated files": ("mutated_files", "Mutants of files"),
        "threshold cycles": ("threshold_cycles", "Cycles"),
        "ratios of gradients": ("threshold_cycles", "Ratios of gradients"),
        "kinds of quantizers": ("quantizers", "Kinds of quantizers"),
        "settings of thresholds": ("threshold_cycles", "Settings of table 4"),
    }
)


def _table(name: str, title: str) -> str:
    return read(name).table(title).markdown() + "\n"


# By the name of the marker `<!-- table: NAME -->` in a page.
TABLES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {f"results of {topic.name}": partial(_of, topic) for topic in TOPICS}
    | {marker: partial(_table, *place) for marker, place in OTHERS.items()}
    | {"index of results": _index}
)


def figures() -> Iterator[tuple[str, bytes]]:
    """The path of each figure from the repository's root, and its content."""
    for topic in TOPICS:
        table = topic.figure(read(topic.name))
        yield topic.image, figure(topic.title, table, topic.kind, ROOT / topic.image)
