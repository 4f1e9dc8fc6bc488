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
    """Records from actors to the learner: one ring in shared memory for each actor.

    `writer(number)` and `reader()` return its ends. `create` and `open` are the usual constructors.

    Args:
        region: The shared memory.
        dtype: Structured type of a record.
        writers: Number of rings.
        capacity: Number of records that fit into a ring.

    Attributes:
        name: Name of the memory, by which other processes open the rings.
        dtype: Structured type of a record.
        writers: Number of rings.
        capacity: Number of records that fit into a ring.

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.broadcast import Experience
        >>> rings = Experience.create(np.dtype([("reward", "<f4")]), capacity=100, writers=1)
        >>> rings.writer(0).put(np.ones(3, rings.dtype))
        3
        >>> rings.reader().take(10)["reward"].tolist()
        [1.0, 1.0, 1.0]
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
        """Create rings in shared memory.

        Args:
            dtype: Structured type of a record, with numeric fields only.
            capacity: Number of records that fit into a ring.
            writers: Number of rings, at most 1024.

        Returns:
            The rings.

        Raises:
            UsageError: Such records cannot be shared, or a size is out of range.
            OutputError: There is not enough shared memory.
        """
        if dtype.hasobject or dtype.itemsize == 0:
            raise UsageError(f"records of {dtype} cannot be shared", hint="use numeric fields")
        if not (0 < writers <= MAX_WRITERS and capacity > 0):
            raise UsageError(f"experience cannot have {writers} rings of {capacity} records")
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
        """Open rings that another process created.

        Args:
            name: `Experience.name` of that process.

        Returns:
            The rings.

        Raises:
            LoadError: No rings have this name, or their memory is damaged.
        """
        region = Region.attach(name)
        front = region.view(0, PAGE, writable=False)[:PAGE]
        magic, writers, capacity, record, length = LABEL.unpack(front[: LABEL.size])
        if magic != MAGIC or not (0 < writers <= MAX_WRITERS and capacity > 0):
            raise LoadError("not memory of experience", node=name)
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
        """Open rings that another process created, as one of their writers.

        Args:
            name: `Experience.name` of that process.
            writer: Number of the actor, from 0.

        Returns:
            The writer.

        Raises:
            LoadError: No rings have this name, or their memory is damaged.
            UsageError: The number is not that of a writer.
        """
        return Experience.open(name).writer(writer)

    def writer(self, number: int) -> RecordWriter:
        """Get the end of an actor. An earlier writer of the same number must have ended.

        Args:
            number: Number of the actor, from 0.

        Returns:
            The writer.

        Raises:
            UsageError: The number is not that of a writer.
        """
        return RecordWriter(self, number)

    def checked(self, number: int) -> int:
        """Check the number of an actor.

        Args:
            number: Number of the actor, from 0.

        Returns:
            The number.

        Raises:
            UsageError: The number is not that of a writer.
        """
        if not 0 <= number < self.writers:
            raise UsageError(
                f"actor {number} does not exist: the number of rings is {self.writers}"
            )
        return number

    def reader(self) -> RecordReader:
        """Get the end of the learner. There is one at a time.

        Returns:
            The reader.
        """
        return RecordReader(self)

    def settings(self, writer: int) -> RingPlace:
        """Get the settings from which an actor process opens its ring (`RecordWriter.of`).

        Args:
            writer: Number of the actor, from 0.

        Returns:
            The place of the ring.
        """
        return RingPlace(self.name, self.checked(writer))

    def unread(self, writer: int) -> int:
        """Count the records in a ring.

        Args:
            writer: Number of the actor.

        Returns:
            The number of records that the learner has not taken yet.
        """
        return self.native.filled(self.checked(writer))

    def written(self, writer: int) -> int:
        """Count the records that were put into a ring since it was created.

        Args:
            writer: Number of the actor.

        Returns:
            The number of records.
        """
        return self.native.written(self.checked(writer))

    def put_wait_seconds(self, writer: int) -> float:
        """Get the time that an actor has waited for space in its ring.

        Args:
            writer: Number of the actor.

        Returns:
            Seconds.
        """
        return self.native.put_waited(self.checked(writer)) / 1e9

    @property
    def take_wait_seconds(self) -> float:
        """Seconds that the learner has waited for records."""
        return self.native.take_waited() / 1e9


class RecordWriter:
    """An actor's end of the rings.

    Args:
        rings: The rings.
        number: Number of the actor, from 0.

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.broadcast import Experience, RecordWriter
        >>> rings = Experience.create(np.dtype([("reward", "<f4")]), capacity=100, writers=2)
        >>> RecordWriter.of(rings.settings(1)).put(np.zeros(5, rings.dtype))
        5
    """

    def __init__(self, rings: Experience, number: int) -> None:
        self.rings = rings
        self.number = rings.checked(number)
        self._native = rings.native

    @staticmethod
    def of(place: RingPlace) -> RecordWriter:
        """Open the ring of an actor, in its process.

        Args:
            place: The result of `Experience.settings`.

        Returns:
            The writer.

        Raises:
            LoadError: No rings have this name.
        """
        return Experience.attach(place.rings, place.writer)

    def put(self, records: Array, timeout: float | None = None) -> int:
        """Add records. While the ring is full, it sleeps.

        Args:
            records: One record or an array [n], of type `rings.dtype`.
            timeout: Seconds to wait for space at most; None waits without a limit.

        Returns:
            The number of records that were added, all of them, unless the time was over.

        Raises:
            UsageError: The records have another type.
        """
        dtype = records.dtype
        if dtype is not self.rings.dtype and dtype != self.rings.dtype:
            raise UsageError(f"records have dtype {dtype}, not {self.rings.dtype}")
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
    """The learner's end of the rings.

    Args:
        rings: The rings.

    Examples:
        >>> import numpy as np
        >>> from qgraph.rl.broadcast import Experience
        >>> rings = Experience.create(np.dtype([("reward", "<f4")]), capacity=100, writers=2)
        >>> len(rings.reader().take(10))
        0
    """

    def __init__(self, rings: Experience) -> None:
        self.rings = rings
        self._native = rings.native
        self._next = 0

    def take(self, count: int, timeout: float = 0.0, writer: int | None = None) -> Array:
        """Take records that have arrived.

        Args:
            count: Number of records to take at most.
            timeout: Seconds to wait for the first record, if there is none.
            writer: Number of the actor to take records of; None takes those of all actors in turn.

        Returns:
            The records, [n].
        """
        found = self._take(count, writer)
        end = native().now() + int(timeout * 1e9)
        while not len(found) and (left := end - native().now()) > 0:
            if writer is None:
                self._native.wait_filled(left)
            else:  # records of all actors wake it up, so it sleeps briefly after each
                self._native.wait_filled(min(left, 1000000))
            found = self._take(count, writer)
        return found

    def _take(self, count: int, writer: int | None) -> Array:
        rings = self.rings
        turn = [(self._next + i) % rings.writers for i in range(rings.writers)]
        order = turn if writer is None else [rings.checked(writer)]
        count = min(count, sum(rings.unread(number) for number in order))
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
        element, shape = form
        return np.dtype((read_form(element), tuple(shape)))
    record = from_json(_FieldsForm, form)
    return np.dtype(
        {
            "names": [name for name, _, _ in record.fields],
            "formats": [read_form(part) for _, part, _ in record.fields],
            "offsets": [offset for _, _, offset in record.fields],
            "itemsize": record.size,
        }
    )
