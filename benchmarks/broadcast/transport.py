"""Transport of a block to two processes, by several carriers.

`transport` starts receivers as ``python -m benchmarks.broadcast.transport``.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Client, Listener
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.tables import Table
from qgraph.ir.types import Array
from qgraph.rl.broadcast import Channel, Member, Supervisor, joined

MODULE = "benchmarks.broadcast.transport"
SIZE, READERS = 8_400_000, 2
SEEN, READ = 0, 1  # times that a receiver reports (ns): it had the block, and it had read all of it
ROUND = 2
BOX = "box"
GAP = 0.02
FIRST = 3
Send = Callable[[Array, int], None]
Receive = Callable[[float], Array | None]


def transport(rounds: int) -> Table:
    """Median times over `rounds`, for the slower of the receivers."""
    table = Table(
        f"{SIZE / 1e6:.1f} MB to {READERS} processes, ms",
        {"carrier": "", "there": ".2f", "read, all of it": ".2f"},
    )
    for name, carrier in CARRIERS.items():
        if (package := PACKAGES.get(name)) and importlib.util.find_spec(package) is None:
            table.notes.append(f"{name}: `{package}` is not installed")
            continue
        with Supervisor(READERS) as run, carrier(run) as send:
            seen, read = zip(*_rounds(run, send, rounds), strict=True)
        table.add(name, median(seen), median(read))
    return table


def _rounds(run: Supervisor, send: Send, rounds: int) -> Iterator[tuple[float, float]]:
    shown = [run.numbers(f"receiver {i}") for i in range(READERS)]
    block = np.random.default_rng(0).integers(0, 255, SIZE, np.uint8)
    for number in range(1, rounds + FIRST + 1):
        begin = time.monotonic_ns()
        send(block, number)
        while any(row[ROUND] != number for row in shown):
            run.check()
            time.sleep(0.0005)
        if number > FIRST:
            seen, read = (max(row[i] - begin for row in shown) / 1e6 for i in (SEEN, READ))
            yield seen, read
        time.sleep(GAP)


# -- carriers: the sender's side ------------------------------------------------------------------


@contextmanager
def _channel(run: Supervisor) -> Iterator[Send]:
    channel = Channel.create(SIZE, READERS)
    writer = channel.writer()
    _start(run, "channel", channel.name)

    def send(block: Array, number: int) -> None:
        writer.next_block()[:] = block
        writer.publish(number)

    yield send


@contextmanager
def _pipe(run: Supervisor) -> Iterator[Send]:
    with tempfile.TemporaryDirectory() as folder:
        with Listener(str(Path(folder) / "socket"), "AF_UNIX") as listener:
            _start(run, "pipe", listener.address)
            ends = [listener.accept() for _ in range(READERS)]

        def send(block: Array, number: int) -> None:
            for end in ends:
                end.send_bytes(block.data)

        yield send
        for end in ends:
            end.close()


@contextmanager
def _zeromq(run: Supervisor) -> Iterator[Send]:
    zmq: Any = importlib.import_module("zmq")
    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context:
        socket = context.socket(zmq.PUB)
        address = f"ipc://{folder}/socket"
        socket.bind(address)
        _start(run, "zeromq", address)
        time.sleep(2.0)  # until the receivers have subscribed
        yield lambda block, number: socket.send(block, copy=False)
        socket.close(0)


@contextmanager
def _ray(run: Supervisor) -> Iterator[Send]:
    import ray

    quiet = {"include_dashboard": False, "log_to_driver": False}
    found = ray.init(num_cpus=1, namespace=BOX, **quiet)
    box = ray.remote(Box).options(num_cpus=0, name=BOX).remote()

    def send(block: Array, number: int) -> None:
        box.put.remote([ray.put(block)], number)

    try:
        _start(run, "ray", found.address_info["gcs_address"])
        yield send
        run.stop()
    finally:
        ray.shutdown()


class Box:
    """A Ray actor from which receivers learn which object of Ray's store is the latest."""

    def __init__(self) -> None:
        self.latest: tuple[Any, int] = ([], 0)

    def put(self, reference: Any, number: int) -> None:
        self.latest = (reference, number)

    def get(self) -> tuple[Any, int]:
        return self.latest


def _start(run: Supervisor, carrier: str, address: Any) -> None:
    for number in range(READERS):
        settings = {"carrier": carrier, "address": address, "number": number}
        run.start(f"receiver {number}", MODULE, settings)


CARRIERS = {
    "shared memory (Channel)": _channel,
    "Unix sockets": _pipe,
    "ZeroMQ": _zeromq,
    "Ray's object store": _ray,
}
PACKAGES = {"ZeroMQ": "zmq", "Ray's object store": "ray"}


# -- a receiver -----------------------------------------------------------------------------------


def receive(member: Member, settings: dict[str, Any]) -> None:
    next_block = RECEIVERS[settings["carrier"]](settings["address"], settings["number"])
    number = 0
    while member.running():
        block = next_block(0.1)
        if block is None:
            continue
        member.numbers[SEEN] = time.monotonic_ns()
        block[: SIZE // 8 * 8].view(np.int64).sum()
        member.numbers[READ] = time.monotonic_ns()
        number += 1
        member.numbers[ROUND] = number


def _from_channel(address: str, number: int) -> Receive:
    reader = Channel.attach(address, number)

    def receive(seconds: float) -> Array | None:
        reader.wait(reader.version + 1, seconds)
        return reader.latest()

    return receive


def _from_pipe(address: str, number: int) -> Receive:
    end = Client(address, "AF_UNIX")
    block = np.empty(SIZE, np.uint8)

    def receive(seconds: float) -> Array | None:
        if not end.poll(seconds):
            return None
        end.recv_bytes_into(block)
        return block

    return receive


def _from_zeromq(address: str, number: int) -> Receive:
    zmq: Any = importlib.import_module("zmq")
    socket = zmq.Context().socket(zmq.SUB)
    socket.connect(address)
    socket.subscribe("")

    def receive(seconds: float) -> Array | None:
        if not socket.poll(int(seconds * 1e3)):
            return None
        return np.frombuffer(socket.recv(copy=False).buffer, np.uint8)

    return receive


def _from_ray(address: str, number: int) -> Receive:
    import ray

    ray.init(address, namespace=BOX, log_to_driver=False)
    box, known = ray.get_actor(BOX), [0]

    def receive(seconds: float) -> Array | None:
        references, latest = ray.get(box.get.remote())
        if latest == known[0]:
            return None
        known[0] = latest
        found: Array = ray.get(references[0])
        return found

    return receive


RECEIVERS = {
    "channel": _from_channel, "pipe": _from_pipe, "zeromq": _from_zeromq, "ray": _from_ray,
}  # fmt: skip


def main() -> None:
    with joined(dict[str, object]) as (member, settings):
        receive(member, settings)


if __name__ == "__main__":
    main()
