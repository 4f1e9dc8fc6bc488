"""Faults of the protocol, each of which a schedule must find."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

from qgraph import files
from qgraph.rl.broadcast.ray import _Node
from qgraph.rl.broadcast.supervisor import Supervisor
from qgraph.rl.broadcast.weights import WeightReceiver
from qgraph.train import checkpoint
from tests.rl.simulation.native_broadcast import PlantedFault

STORE = "head_->latest.store(publications * PUBLICATION + static_cast<uint64_t>(buffer));\n"
VERSION = "    buffers_[buffer].version.store(version);\n"
COUNT = "    const uint64_t publications = head_->latest.load() / PUBLICATION + 1;\n"
RING = "    rung.fetch_add(1);\n"
WAKE = "    if (sleepers.load() != 0) wake_all(rung);\n"
PUT = "    copy_bytes(place(writer, begin), source,"
WRITTEN = "    ring.written.store(begin + static_cast<uint64_t>(count));\n"
TAKEN = "    ring.taken.store(begin + static_cast<uint64_t>(count));\n"
TAKE = "    copy_bytes(target, place(writer, begin),"

# Of the native code, found at the ends of a channel and of rings.
NATIVE: Mapping[str, PlantedFault] = MappingProxyType(
    {
        "a reader does not check again that its buffer is the latest": PlantedFault(
            "channel.cpp", "if (again == latest)", "if (again >= latest)"
        ),
        "the writer takes a buffer that a reader holds": PlantedFault(
            "channel.cpp", "i != kept && !held(static_cast<uint32_t>(i))", "i != kept"
        ),
        "a block is the latest before it has its version": PlantedFault(
            "channel.cpp", VERSION + COUNT + "    " + STORE, COUNT + "    " + STORE + VERSION
        ),
        "a reader releases a block when it takes it": PlantedFault(
            "channel.cpp",
            "return {buffer, buffers_[buffer].version.load()};",
            "return held.store(0), Found{buffer, buffers_[buffer].version.load()};",
        ),
        "a record counts before it is copied": PlantedFault(
            "rings.cpp",
            PUT,
            WRITTEN + PUT,
        ),
        "room counts as free before its record is read": PlantedFault(
            "rings.cpp",
            TAKE,
            TAKEN + TAKE,
        ),
        "sleepers are woken before the bell rings": PlantedFault(
            "bell.cpp", RING + WAKE, WAKE + RING
        ),
    }
)


def _in_place(path: Path, content: bytes) -> None:
    """Write a file without a draft."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with files.os.fdopen(handle, "wb") as stream:  # in pieces
        stream.write(content)


def _start_without_block(start: Callable[[_Node], None]) -> Callable[[_Node], None]:
    """A node that forgets that its new relay has no block."""

    def planted(node: _Node) -> None:
        before = node.version
        start(node)
        node.version = before

    return planted


def _nothing(*given: Any, **named: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class PlantedPatch:
    """A change of code in Python, the scenario that finds it, and its complaint."""

    scenario: str
    complaint: str
    patch: Callable[[], Any]


PYTHON: Mapping[str, PlantedPatch] = MappingProxyType(
    {
        "weights are packed before they have arrived": PlantedPatch(
            "quantizer",
            "the block of version .* is not whole",
            lambda: mock.patch.object(WeightReceiver, "arrived", _nothing),
        ),
        "an actor that dies is not restarted": PlantedPatch(
            "direct",
            "(no end after|actors act by)",
            lambda: mock.patch.object(Supervisor, "_crashed", _nothing),
        ),
        "a checkpoint is written over the last one": PlantedPatch(
            "direct",
            "LoadError: .*checkpoint",
            lambda: mock.patch.object(checkpoint, "write_whole", _in_place),
        ),
        "a new relay gets no block until there is a newer one": PlantedPatch(
            "relays",
            "(no end after|actors act by)",
            lambda: mock.patch.object(_Node, "start", _start_without_block(_Node.start)),
        ),
    }
)
