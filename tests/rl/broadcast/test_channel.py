from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.errors import LoadError, OutputError, UsageError
from qgraph.rl.broadcast import Channel
from qgraph.rl.broadcast.board import Board
from qgraph.rl.broadcast.memory import Region


def publish(writer, version: int) -> None:
    writer.next_block()[:] = version % 251
    writer.publish(version)


def test_a_reader_gets_the_latest_block_once() -> None:
    channel = Channel.create(100, readers=1)
    writer, reader = channel.writer(), Channel.attach(channel.name, 0)
    assert reader.latest() is None
    publish(writer, 3)
    publish(writer, 4)
    block = reader.latest()
    assert set(block) == {4}
    assert reader.version == 4
    assert reader.latest() is None


def test_blocks_are_read_where_they_lie_and_cannot_be_written() -> None:
    channel = Channel.create(100, readers=1)
    reader = channel.reader(0)
    publish(channel.writer(), 1)
    block = reader.latest()
    with pytest.raises(ValueError, match="read-only"):
        block[0] = 1


def test_two_buffers_are_enough_if_no_reader_holds_an_old_block() -> None:
    channel = Channel.create(100, readers=3)
    writer, readers = channel.writer(), [channel.reader(i) for i in range(3)]
    addresses = set()
    for version in range(10):
        publish(writer, version)
        for reader in readers:
            reader.latest()
        addresses.add(writer.next_block().ctypes.data)
    assert len(addresses) == 2


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.just(("publish", 0, True)),
            st.tuples(st.just("latest"), st.integers(0, 2), st.just(True)),
            st.tuples(st.just("update"), st.integers(0, 2), st.booleans()),
            st.tuples(st.just("leave"), st.integers(0, 2), st.just(True)),
        ),
        max_size=60,
    )
)
def test_what_a_reader_holds_is_never_written(events: list[tuple[str, int, bool]]) -> None:
    channel = Channel.create(64, readers=3)
    writer, readers = channel.writer(), [channel.reader(i) for i in range(3)]
    held: dict[int, tuple[int, np.ndarray]] = {}
    version = 0
    for event, number, good in events:
        reader = readers[number]
        if event == "publish":
            version += 1
            publish(writer, version)
        elif event == "latest":
            block = reader.latest()
            assert (block is None) == (version <= max(reader_version(held, number), 0))
            if block is not None:
                held[number] = (version, block)
        elif event == "update":
            seen = []
            try:
                reader.update(seen.append if good else refuse)
            except LoadError:
                assert reader.version == held.get(number, (-1, None))[0]
                readers[number] = channel.reader(number)  # offers it again
                held.pop(number, None)
            if seen:
                held[number] = (version, seen[0])
        else:
            readers[number] = channel.reader(number)
            held.pop(number, None)
        writer.next_block()[:] = 255
        for kept, block in held.values():
            assert set(block) == {kept % 251}


def reader_version(held: dict[int, tuple[int, np.ndarray]], number: int) -> int:
    return held[number][0] if number in held else -1


def refuse(block: np.ndarray) -> None:
    raise LoadError("is corrupt")


def test_a_refused_block_is_not_offered_again_and_the_last_one_stays() -> None:
    channel = Channel.create(10, readers=1)
    writer, reader = channel.writer(), channel.reader(0)
    publish(writer, 1)
    first = reader.latest()
    publish(writer, 2)
    with pytest.raises(LoadError):
        reader.update(refuse)
    assert not reader.update(refuse)
    for version in (3, 4, 5):
        publish(writer, version)
        writer.next_block()[:] = 255
    assert set(first) == {1}
    assert reader.version == 1
    seen = []
    assert reader.update(seen.append)
    assert set(seen[0]) == {5}


def test_versions_grow() -> None:
    channel = Channel.create(10, readers=1)
    writer = channel.writer()
    with pytest.raises(UsageError, match="no block was written"):
        writer.publish(0)
    publish(writer, 5)
    for version in (5, 4):
        writer.next_block()
        with pytest.raises(UsageError, match=f"version {version} after version 5"):
            writer.publish(version)
    assert writer.version == 5


def test_readers_and_writer_at_once_never_see_a_block_in_the_making() -> None:
    channel = Channel.create(20000, readers=2)
    done = threading.Event()
    faults, seen = [], [0, 0]

    def read(number: int) -> None:
        reader = Channel.attach(channel.name, number)
        while not done.is_set():
            block = reader.latest()
            if block is not None:
                seen[number] += 1
                if (block != reader.version % 251).any():
                    faults.append(reader.version)

    threads = [threading.Thread(target=read, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    writer = channel.writer()
    end, version = time.monotonic() + 20, 0
    while min(seen) < 20 and time.monotonic() < end:
        version += 1
        publish(writer, version)
        if version % 100 == 0:
            time.sleep(0)
    done.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert min(seen) >= 20


def test_a_reader_sleeps_until_a_version_is_there() -> None:
    channel = Channel.create(10, readers=1)
    writer, reader = channel.writer(), channel.reader(0)
    publish(writer, 1)
    assert reader.wait(1, 0)
    assert not reader.wait(2, 0.01)
    later = threading.Timer(0.05, publish, [writer, 7])
    later.start()
    begin = time.monotonic()
    assert reader.wait(2, 30)
    assert time.monotonic() - begin < 25
    later.join()


def test_a_writer_on_demand_is_notified_of_requests() -> None:
    channel = Channel.create(10, readers=2)
    writer, readers = channel.writer(), [channel.reader(i) for i in range(2)]
    assert not writer.requested()
    assert not writer.wait_requested(0.01)
    later = threading.Timer(0.05, readers[1].request)
    later.start()
    assert writer.wait_requested(30)
    readers[0].request()
    later.join()
    assert writer.requested()
    assert not writer.requested()


def test_what_is_no_channel_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(10000))
    with pytest.raises(LoadError, match="not a channel"):
        Channel.attach(str(other), 0)
    with pytest.raises(LoadError, match="has ended"):
        Channel.attach("/proc/1/fd/999999", 0)
    with pytest.raises(UsageError, match="reader 3 does not exist: the channel has 2"):
        Channel.create(10, readers=2).reader(3)
    with pytest.raises(UsageError, match="0 bytes"):
        Channel.create(0, readers=2)


def test_a_channel_cut_short_is_refused(tmp_path: Path) -> None:
    from qgraph.rl.broadcast.channel import LABEL, MAGIC

    short = tmp_path / "short"
    short.write_bytes(LABEL.pack(MAGIC, 1 << 30, 4).ljust(4096, b"\0"))
    with pytest.raises(LoadError, match="shorter than its header states"):
        Channel.attach(str(short), 0)


def test_nothing_is_left_when_its_processes_are_killed() -> None:
    script = (
        "import os, signal; from qgraph.rl.broadcast import Channel;"
        "c = Channel.create(1 << 20, 1); c.writer().next_block()[:] = 1;"
        "print(c.name, os.readlink(c.name), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == -9
    name, memory = ended.stdout.split(maxsplit=1)
    assert not os.path.exists(name)
    assert memory.startswith("/memfd:")  # of no file system: the kernel frees it with its last user


def test_memory_that_the_system_refuses_is_an_error_and_leaves_no_handle() -> None:
    gc.collect()  # what tests before left
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OutputError, match="no shared memory"):
        Region.create("much", 1 << 63)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_board_shorter_than_its_header_states_is_an_error() -> None:
    board = Board.create(3)
    assert len(Board.open(board.name).rows) == 3
    board._front["rows"] = 2000
    with pytest.raises(LoadError, match="not the board"):
        Board.open(board.name)
