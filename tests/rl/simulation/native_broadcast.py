"""`qgraph._native.broadcast` on a simulated machine: its own C++ code, one step at a time.

`fused_ops/tests/simulated` takes the place of the machine, so that each access of a shared word is
a step of a `TurnScheduler`. The code of the protocol, `fused_ops/rl`, is compiled unchanged.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from qgraph import kernels
from qgraph.ir.types import Array
from qgraph.train.gpu import compiler
from tests.rl.simulation.scheduler import Killed, TurnScheduler

ROOT = Path(__file__).parents[3] / "fused_ops"
SOURCES = ("bell", "channel", "rings")
KILLED = -(1 << 63)

STEP = ctypes.CFUNCTYPE(ctypes.c_bool)
SLEEP = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64)
WAKE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
NOW = ctypes.CFUNCTYPE(ctypes.c_int64)


@dataclass(frozen=True)
class PlantedFault:
    """A change of a source of the protocol that a schedule must find."""

    source: str  # a file in fused_ops/rl
    before: str
    after: str


class SchedulerCallbacks(ctypes.Structure):
    """`qgraph::rl::Scheduler`."""

    _fields_: Sequence = (("step", STEP), ("sleep", SLEEP), ("wake", WAKE), ("now", NOW))


@cache
def compiled(*faults: PlantedFault) -> ctypes.PyDLL:
    """The protocol as a library, with planted faults. Needs a C++ compiler."""
    with tempfile.TemporaryDirectory() as place:
        folder, library = Path(place), Path(place, "simulated.so")
        (folder / "rl").mkdir()
        for path in (ROOT / "rl").iterdir():
            text = path.read_text("utf-8")
            for fault in faults:
                if path.name == fault.source:
                    assert text.count(fault.before) == 1, fault
                    text = text.replace(fault.before, fault.after)
            (folder / "rl" / path.name).write_text(text, "utf-8")
        (folder / "rl" / "machine.h").unlink()
        sources = [ROOT / "tests/simulated/broadcast.cpp"]
        sources += [folder / "rl" / f"{name}.cpp" for name in SOURCES]
        command = [compiler(), "-shared", "-fPIC", "-std=c++17", "-O1"]
        command += ["-I", str(ROOT / "tests/simulated"), "-I", str(folder)]
        subprocess.run([*command, *map(str, sources), "-o", str(library)], check=True)
        return ctypes.PyDLL(str(library))


class SimulatedNative:
    """The interface of `qgraph._native.broadcast`, for the processes of one scheduler."""

    def __init__(self, scheduler: TurnScheduler, library: ctypes.PyDLL) -> None:
        self.scheduler = scheduler
        call = partial(_call, library)
        self.Channel = partial(SimulatedChannel, call)
        self.Rings = partial(SimulatedRings, call)
        self.channel_head: Callable[[int], int] = partial(call, "channel_head")
        self.channel_buffers: Callable[[int], int] = partial(call, "channel_buffers")
        self.rings_head: Callable[[int], int] = partial(call, "rings_head")
        real = kernels.native_broadcast()
        assert real is not None, "the native library is not built"
        self.memory_file = real.memory_file
        # The library keeps pointers to these functions.
        self._callbacks = SchedulerCallbacks(
            STEP(scheduler.try_step),
            SLEEP(scheduler.sleep_on),
            WAKE(scheduler.wake),
            NOW(self.now),
        )
        library.simulate.argtypes = [SchedulerCallbacks]
        library.simulate(self._callbacks)

    def now(self) -> int:
        return self.scheduler.now

    def die_with(self, parent: int) -> bool:
        self.scheduler.step()
        return True


class SimulatedChannel:
    """`qgraph._native.broadcast.Channel`."""

    def __init__(self, call: Callable[..., int], memory: object, readers: int) -> None:
        self._call, self._readers = call, readers
        self._bytes = np.frombuffer(memory, np.uint8)  # type: ignore[call-overload]

    def _do(self, name: str, *given: object) -> int:
        return self._call(f"channel_{name}", self._bytes.ctypes.data, self._readers, *given)

    def room(self) -> int:
        return self._do("room")

    def publish(self, buffer: int, version: int) -> bool:
        return bool(self._do("publish", buffer, version))

    def asked(self) -> bool:
        return bool(self._do("asked"))

    def wait_asked(self, nanoseconds: int) -> bool:
        return bool(self._do("wait_asked", nanoseconds))

    def claim(self, reader: int, slot: int, newer_than: int) -> tuple[int, int]:
        version = ctypes.c_int64(-1)
        buffer = self._do("claim", reader, slot, newer_than, ctypes.byref(version))
        return buffer, version.value

    def release(self, reader: int, slot: int) -> None:
        self._do("release", reader, slot)

    def ask(self) -> None:
        self._do("ask")

    def wait(self, version: int, nanoseconds: int) -> bool:
        return bool(self._do("wait", version, nanoseconds))

    def version(self) -> int:
        return self._do("version")


class SimulatedRings:
    """`qgraph._native.broadcast.Rings`."""

    def __init__(
        self,
        call: Callable[..., int],
        memory: object,
        offset: int,
        writers: int,
        capacity: int,
        record_size: int,
    ) -> None:
        self._call, self._size = call, record_size
        self._bytes = np.frombuffer(memory, np.uint8)  # type: ignore[call-overload]
        place = self._bytes.ctypes.data + offset
        self._rings = (place, writers, capacity, record_size)

    def _do(self, name: str, *given: object) -> int:
        return self._call(f"rings_{name}", *self._rings, *given)

    def _records(self, records: Array, begin: int) -> tuple[int, int]:
        """Address and number of the records from `begin` on."""
        count = records.nbytes // self._size
        return records.ctypes.data + begin * self._size, count - begin

    def put(self, writer: int, records: Array, begin: int) -> int:
        return self._do("put", writer, *self._records(records, begin))

    def take(self, writer: int, records: Array, begin: int) -> int:
        return self._do("take", writer, *self._records(records, begin))

    def wait_free(self, writer: int, nanoseconds: int) -> bool:
        return bool(self._do("wait_free", writer, nanoseconds))

    def wait_filled(self, nanoseconds: int) -> bool:
        return bool(self._do("wait_filled", nanoseconds))

    def filled(self, writer: int) -> int:
        return self._do("filled", writer)

    def written(self, writer: int) -> int:
        return self._do("written", writer)

    def put_waited(self, writer: int) -> int:
        return self._do("put_waited", writer)

    def take_waited(self) -> int:
        return self._do("take_waited")


def _call(library: ctypes.PyDLL, name: str, *given: object) -> int:
    """Call a function. Raises Killed."""
    function = getattr(library, name)
    function.restype = ctypes.c_int64
    found: int = function(*(ctypes.c_int64(one) if type(one) is int else one for one in given))
    if found == KILLED:
        raise Killed
    return found
