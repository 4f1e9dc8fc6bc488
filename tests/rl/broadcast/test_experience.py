from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import LoadError, UsageError
from qgraph.rl.broadcast import Experience, RecordWriter
from qgraph.rl.broadcast.experience import read_form

TRANSITION = np.dtype(
    [("observation", "f4", (3, 2)), ("action", "i8"), ("done", "?"), ("version", "i4")],
    align=True,
)


def numbered(begin: int, count: int) -> np.ndarray:
    records = np.zeros(count, TRANSITION)
    records["action"] = np.arange(begin, begin + count)
    records["observation"] = records["action"][:, None, None]
    return records


def test_records_have_the_same_form_at_both_ends() -> None:
    rings = Experience.create(TRANSITION, capacity=4, writers=2)
    writer = Experience.attach(rings.name, 1)
    assert writer.rings.dtype == TRANSITION
    assert writer.rings.dtype.itemsize == TRANSITION.itemsize
    writer.put(numbered(5, 2))
    assert np.array_equal(rings.reader().take(10), numbered(5, 2))


@settings(max_examples=60)
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from(["put", "take"]), st.integers(0, 8)), max_size=50),
)
def test_what_goes_in_comes_out_once_and_in_order(
    capacity: int, events: list[tuple[str, int]]
) -> None:
    rings = Experience.create(TRANSITION, capacity, writers=1)
    writer, reader = rings.writer(0), rings.reader()
    put = taken = 0
    for event, count in events:
        if event == "put":
            fits = min(count, capacity - (put - taken))
            assert writer.put(numbered(put, count), timeout=0) == fits
            put += fits
        else:
            found = reader.take(count)
            assert np.array_equal(found, numbered(taken, min(count, put - taken)))
            taken += len(found)
        assert rings.unread(0) == put - taken
        assert rings.written(0) == put


def test_all_actors_have_their_turn() -> None:
    rings = Experience.create(TRANSITION, capacity=8, writers=3)
    for number in range(3):
        rings.writer(number).put(numbered(100 * number, 8))
    reader = rings.reader()
    firsts = [int(reader.take(2)["action"][0]) // 100 for _ in range(6)]
    assert firsts == [0, 1, 2, 0, 1, 2]
    assert list(reader.take(2, writer=2)["action"]) == [204, 205]


def test_a_writer_of_a_full_ring_sleeps_until_there_is_space() -> None:
    rings = Experience.create(TRANSITION, capacity=4, writers=1)
    writer, reader = rings.writer(0), rings.reader()
    taken = []

    def take() -> None:
        while sum(map(len, taken)) < 1000:
            taken.append(reader.take(3, timeout=10))

    thread = threading.Thread(target=take)
    thread.start()
    assert writer.put(numbered(0, 1000)) == 1000
    thread.join()
    assert np.array_equal(np.concatenate(taken), numbered(0, 1000))


def test_waiting_is_counted() -> None:
    rings = Experience.create(TRANSITION, capacity=1, writers=2)
    writer = rings.writer(1)
    assert writer.put(numbered(0, 2), timeout=0.05) == 1
    assert 0 < rings.put_wait_seconds(1) < 5
    assert rings.put_wait_seconds(0) == 0
    reader = rings.reader()
    reader.take(1)
    assert len(reader.take(1, timeout=0.05)) == 0
    assert 0 < rings.take_wait_seconds < 5


def test_one_record_may_be_put_too() -> None:
    rings = Experience.create(TRANSITION, capacity=2, writers=1)
    rings.writer(0).put(numbered(3, 1).reshape(()))
    rings.writer(0).put(numbered(0, 4)[3:0:-3])
    assert list(rings.reader().take(2)["action"]) == [3, 3]


def test_what_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be shared"):
        Experience.create(np.dtype([("any", "O")]), 10, 1)
    with pytest.raises(UsageError, match="rings of 0 records"):
        Experience.create(TRANSITION, 0, 1)
    with pytest.raises(UsageError, match="50 fields"):
        Experience.create(np.dtype([(f"a_long_name_{i}", "f4", (3, 3)) for i in range(200)]), 1, 1)
    rings = Experience.create(TRANSITION, 10, 1)
    with pytest.raises(UsageError, match="actor 1 does not exist: the number of rings is 1"):
        rings.writer(1)
    for ask in (
        rings.unread, rings.written, rings.put_wait_seconds, rings.settings,
        lambda number: RecordWriter(rings, number),
        lambda number: rings.reader().take(1, writer=number),
    ):  # fmt: skip
        for number in (-1, 1, 1 << 40):
            with pytest.raises(UsageError, match=f"actor {number} does not exist"):
                ask(number)
    with pytest.raises(UsageError, match="records have dtype float64"):
        rings.writer(0).put(np.zeros(3))
    other = tmp_path / "other"
    other.write_bytes(bytes(10000))
    with pytest.raises(LoadError, match="not memory of experience"):
        Experience.open(str(other))


@pytest.mark.parametrize("form", [[], ["<f4"], ["<f4", [2], 1]])
def test_a_damaged_form_of_records_is_a_value_error(form: list[object]) -> None:
    with pytest.raises(ValueError, match="values to unpack"):
        read_form(form)
