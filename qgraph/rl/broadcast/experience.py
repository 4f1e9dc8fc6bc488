"""Records from actors to the learner: a ring for each actor, in shared memory.

A record is one element of a structured dtype, such as a transition. The learner sees whole records
only, whatever happens to an actor.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from qgraph.errors import LoadError, UsageError
from qgraph.ir.types import Array
from qgraph.rl.broadcast.memory import PAGE, Region, native

MAGIC = b"qgraphx1"
LABEL = struct.Struct(
    "<8s4q"
)  # at the front: magic, writers, capacity, bytes of a record, of its form
MAX_WRITERS = 1024
SLICE = 0.1  # seconds between looks at signals while something is waited for


class Experience:
    """The memory of the rings; `writer(i)` and `reader()` are its ends.

    `capacity` records fit into each of the `writers` rings.
    """

    def __init__(self, region: Region, dtype: np.dtype[Any], writers: int, capacity: int) -> None:
        self._region = region
        self.name = region.name
        self.dtype = dtype
        self.writers = writers
        self.capacity = capacity
        self.native = native().Rings(
            region.view(0, region.size), PAGE, writers, capacity, dtype.itemsize
        )

    @staticmethod
    def create(dtype: np.dtype[Any], capacity: int, writers: int) -> Experience:
        """Rings for records of `dtype`. Raises UsageError, OutputError."""
        if dtype.hasobject or dtype.itemsize == 0:
            raise UsageError(f"records of {dtype} cannot be shared", hint="numbers of fixed shapes")
        if not (0 < writers <= MAX_WRITERS and capacity > 0):
            raise UsageError(f"rings of {capacity} records for {writers} actors")
        form = json.dumps(form_of(dtype)).encode()
        if LABEL.size + len(form) > PAGE:
            raise UsageError(f"a record has at most about 50 fields, not {len(dtype.names or ())}")
        size = PAGE + native().rings_head(writers) + writers * capacity * dtype.itemsize
        region = Region.create("experience", size)
        region.reserve(0, size)
        label = LABEL.pack(MAGIC, writers, capacity, dtype.itemsize, len(form)) + form
        region.view(0, PAGE)[: len(label)] = label
        return Experience(region, dtype, writers, capacity)

    @staticmethod
    def open(name: str) -> Experience:
        """Rings that another process made. Raises LoadError."""
        region = Region.attach(name)
        front = region.view(0, PAGE, writable=False)[:PAGE]
        magic, writers, capacity, record, length = LABEL.unpack(front[: LABEL.size])
        if magic != MAGIC or not (0 < writers <= MAX_WRITERS and capacity > 0):
            raise LoadError("does not hold rings of records", node=name)
        try:
            dtype = read_form(json.loads(front[LABEL.size : LABEL.size + length]))
        except (ValueError, TypeError):
            dtype = np.dtype([])
        size = PAGE + native().rings_head(writers) + writers * capacity * record
        if dtype.itemsize != record or record == 0 or size != region.size:
            raise LoadError("the rings are not of the size they say", node=name)
        return Experience(region, dtype, writers, capacity)

    @staticmethod
    def attach(name: str, writer: int) -> RecordWriter:
        """Writer number `writer` of rings that another process made. Raises LoadError."""
        return Experience.open(name).writer(writer)

    def writer(self, number: int) -> RecordWriter:
        """The end of actor `number`; one that had it before is taken as gone."""
        if not 0 <= number < self.writers:
            raise UsageError(f"actor {number} of rings for {self.writers}")
        return RecordWriter(self, number)

    def reader(self) -> RecordReader:
        """The learner's end. There is one at a time."""
        return RecordReader(self)

    def settings(self, writer: int) -> dict[str, Any]:
        """The argument of an actor's `RecordWriter.of`, as JSON."""
        return {"rings": self.name, "writer": writer}

    def filled(self, writer: int) -> int:
        """Records that wait in a ring."""
        return self.native.filled(writer)

    def written(self, writer: int) -> int:
        """Records that were ever put into a ring."""
        return self.native.written(writer)

    def put_waited(self, writer: int) -> float:
        """Seconds that an actor waited for room."""
        return self.native.put_waited(writer) / 1e9

    @property
    def take_waited(self) -> float:
        """Seconds that the learner waited for records."""
        return self.native.take_waited() / 1e9


class RecordWriter:
    def __init__(self, rings: Experience, number: int) -> None:
        self.rings = rings
        self.number = number
        self._native = rings.native

    @staticmethod
    def of(settings: Mapping[str, Any]) -> RecordWriter:
        """The end that `Experience.settings` tells of. Raises LoadError."""
        return Experience.attach(settings["rings"], int(settings["writer"]))

    def put(self, records: Array, timeout: float | None = None) -> int:
        """Add records, [n] or one of `rings.dtype`; sleeps while the ring is full.

        Returns how many were added: all of them, unless `timeout` seconds were over before.
        """
        dtype = records.dtype
        if dtype is not self.rings.dtype and dtype != self.rings.dtype:
            raise UsageError(f"records of {dtype}, not {self.rings.dtype}")
        if not records.flags.c_contiguous:
            records = np.ascontiguousarray(records)
        count = records.size
        done = self._native.put(self.number, records, 0)
        if done == count:
            return done
        end = None if timeout is None else native().now() + int(timeout * 1e9)
        while done < count:
            left = SLICE if end is None else min(SLICE, (end - native().now()) / 1e9)
            if left <= 0:
                break
            self._native.wait_free(self.number, int(left * 1e9))
            done += self._native.put(self.number, records, done)
        return done


class RecordReader:
    def __init__(self, rings: Experience) -> None:
        self.rings = rings
        self._native = rings.native
        self._next = 0

    def take(self, count: int, timeout: float = 0.0, writer: int | None = None) -> Array:
        """At most `count` records, [n]: what is there, of all actors in turn or of one `writer`.

        Where nothing is, it sleeps until something is, at most `timeout` seconds.
        """
        found = self._take(count, writer)
        end = native().now() + int(timeout * 1e9)
        while not len(found) and (left := end - native().now()) > 0:
            if writer is None:
                self._native.wait_filled(left)
            else:  # the bell is that of all rings: a nap, lest others keep this one awake
                self._native.wait_filled(min(left, 1000000))
            found = self._take(count, writer)
        return found

    def _take(self, count: int, writer: int | None) -> Array:
        rings = self.rings
        turn = [(self._next + i) % rings.writers for i in range(rings.writers)]
        order = turn if writer is None else [writer]
        count = min(count, sum(rings.filled(number) for number in order))
        found = np.empty(count, rings.dtype)
        done = 0
        for number in order:
            done += self._native.take(number, found[done:], 0) if done < count else 0
        self._next = (self._next + 1) % rings.writers
        return found


def form_of(dtype: np.dtype[Any]) -> Any:
    """A dtype as JSON: its text, or [name, form, shape, offset] of each field and its size."""
    if dtype.subdtype is not None:
        return [form_of(dtype.subdtype[0]), list(dtype.subdtype[1])]
    if dtype.fields is None:
        return dtype.str
    fields = [[name, form_of(part[0]), part[1]] for name, part in dtype.fields.items()]
    return {"fields": fields, "size": dtype.itemsize}


def read_form(form: Any) -> np.dtype[Any]:
    """The dtype that `form_of` wrote. Raises ValueError, TypeError."""
    if isinstance(form, str):
        return np.dtype(form)
    if isinstance(form, list):
        return np.dtype((read_form(form[0]), tuple(form[1])))
    names, formats, offsets = zip(*form["fields"], strict=True)
    return np.dtype(
        {
            "names": list(names),
            "formats": [read_form(part) for part in formats],
            "offsets": list(offsets),
            "itemsize": form["size"],
        }
    )
