"""Records from actors to the learner: a ring for each actor, in shared memory.

A record is one element of a structured dtype, such as a transition. The learner sees complete
records only, even if an actor is killed while it writes one.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np

from qgraph.errors import LoadError, UsageError
from qgraph.ir.types import Array
from qgraph.records import JSON, from_json
from qgraph.rl.broadcast.memory import PAGE, Region, native

MAGIC = b"qgraphx1"
# At the front: magic, writers, capacity, bytes of a record, bytes of its form (`form_of`).
LABEL = struct.Struct("<8s4q")
MAX_WRITERS = 1024
SLICE = 0.1  # seconds of waiting between checks for signals


@dataclass(frozen=True)
class RingPlace:
    """The ring that an actor writes its records to."""

    rings: str
    writer: int


class Experience:
    """The memory of the rings; `writer(i)` and `reader()` are its ends.

    `capacity` records fit into each of the `writers` rings.
    """

    def __init__(
        self, region: Region, dtype: np.dtype[np.generic], writers: int, capacity: int
    ) -> None:
        self._region = region
        self.name = region.name
        self.dtype = dtype
        self.writers = writers
        self.capacity = capacity
        self.native = native().Rings(
            region.view(0, region.size), PAGE, writers, capacity, dtype.itemsize
        )

    @staticmethod
    def create(dtype: np.dtype[np.generic], capacity: int, writers: int) -> Experience:
        """Rings for records of `dtype`. Raises UsageError, OutputError."""
        if dtype.hasobject or dtype.itemsize == 0:
            raise UsageError(f"records of {dtype} cannot be shared", hint="use numeric fields")
        if not (0 < writers <= MAX_WRITERS and capacity > 0):
            raise UsageError(f"rings of {capacity} records for {writers} actors cannot be made")
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
        """Rings that another process created. Raises LoadError."""
        region = Region.attach(name)
        front = region.view(0, PAGE, writable=False)[:PAGE]
        magic, writers, capacity, record, length = LABEL.unpack(front[: LABEL.size])
        if magic != MAGIC or not (0 < writers <= MAX_WRITERS and capacity > 0):
            raise LoadError("no rings of records in it", node=name)
        try:
            dtype = read_form(json.loads(front[LABEL.size : LABEL.size + length]))
        except (ValueError, TypeError):
            dtype = np.dtype([])
        size = PAGE + native().rings_head(writers) + writers * capacity * record
        if dtype.itemsize != record or record == 0 or size != region.size:
            raise LoadError("the rings do not have the size in their header", node=name)
        return Experience(region, dtype, writers, capacity)

    @staticmethod
    def attach(name: str, writer: int) -> RecordWriter:
        """Writer number `writer` of rings that another process created. Raises LoadError."""
        return Experience.open(name).writer(writer)

    def writer(self, number: int) -> RecordWriter:
        """The end of actor `number`; an earlier writer of it must have ended."""
        if not 0 <= number < self.writers:
            raise UsageError(f"actor {number} of rings for {self.writers}")
        return RecordWriter(self, number)

    def reader(self) -> RecordReader:
        """The learner's end. There is one at a time."""
        return RecordReader(self)

    def settings(self, writer: int) -> RingPlace:
        """The settings of an actor's `RecordWriter.of`."""
        return RingPlace(self.name, writer)

    def filled(self, writer: int) -> int:
        """The number of records in a ring."""
        return self.native.filled(writer)

    def written(self, writer: int) -> int:
        """The number of records that were ever put into a ring."""
        return self.native.written(writer)

    def put_waited(self, writer: int) -> float:
        """Seconds that an actor waited for space."""
        return self.native.put_waited(writer) / 1e9

    @property
    def take_waited(self) -> float:
        """Seconds that the learner waited for records."""
        return self.native.take_waited() / 1e9


class RecordWriter:
    """An actor's end."""

    def __init__(self, rings: Experience, number: int) -> None:
        self.rings = rings
        self.number = number
        self._native = rings.native

    @staticmethod
    def of(place: RingPlace) -> RecordWriter:
        """The end at a place from `Experience.settings`. Raises LoadError."""
        return Experience.attach(place.rings, place.writer)

    def put(self, records: Array, timeout: float | None = None) -> int:
        """Add records, [n] or a single one, of `rings.dtype`; sleep while the ring is full.

        Returns the number of records added: all, unless `timeout` seconds have passed.
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
    """The learner's end."""

    def __init__(self, rings: Experience) -> None:
        self.rings = rings
        self._native = rings.native
        self._next = 0

    def take(self, count: int, timeout: float = 0.0, writer: int | None = None) -> Array:
        """At most `count` records that have arrived, [n], of all actors in turn or of one `writer`.

        If there are none, it sleeps until one arrives, at most `timeout` seconds.
        """
        found = self._take(count, writer)
        end = native().now() + int(timeout * 1e9)
        while not len(found) and (left := end - native().now()) > 0:
            if writer is None:
                self._native.wait_filled(left)
            else:  # all rings wake it up, so it sleeps briefly: others must not keep it busy
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


@dataclass(frozen=True)
class _FieldsForm:
    """A structured dtype in JSON: name, form and offset of each field, and its size."""

    fields: tuple[tuple[str, object, int], ...]
    size: int


def form_of(dtype: np.dtype[np.generic]) -> JSON:
    """A dtype as JSON: its text, [form, shape] of a subarray, or its fields (`_FieldsForm`)."""
    if dtype.subdtype is not None:
        return [form_of(dtype.subdtype[0]), list(dtype.subdtype[1])]
    if dtype.fields is None:
        return dtype.str
    fields = [[name, form_of(part[0]), part[1]] for name, part in dtype.fields.items()]
    return {"fields": fields, "size": dtype.itemsize}


def read_form(form: object) -> np.dtype[np.generic]:
    """The dtype that `form_of` wrote. Raises ValueError, TypeError."""
    if isinstance(form, str):
        return np.dtype(form)
    if isinstance(form, list):
        return np.dtype((read_form(form[0]), tuple(form[1])))
    record = from_json(_FieldsForm, form)
    return np.dtype(
        {
            "names": [name for name, _, _ in record.fields],
            "formats": [read_form(part) for _, part, _ in record.fields],
            "offsets": [offset for _, _, offset in record.fields],
            "itemsize": record.size,
        }
    )
