"""The integer engine: a program's file, mapped into memory and run by native code."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qgraph import kernels
from qgraph.backends.engine.file import engine_file
from qgraph.backends.engine.records import STORAGES, Kind
from qgraph.choices import Level, chosen
from qgraph.errors import GraphError, LoadError, UnsupportedError, UsageError
from qgraph.ir.types import Array
from qgraph.program import Program
from qgraph.program.ops import OPS

if TYPE_CHECKING:
    from qgraph import _native as native_types

Row = tuple[bytes, int, int, tuple[int, ...], int, int]
LEVELS = tuple(Level)
MAX_THREADS = 256
MEMORY = 16 << 30


@dataclass(frozen=True)
class EngineTensor:
    """Description of a tensor by the engine; 1 in its shape stands for a free batch."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: int
    high: int
    constant: bool


class Engine:
    """An integer network that is ready to run.

    `Engine.open` opens a file, `Engine.of` takes a program.

    Args:
        handle: The network in native code.
        path: Path of its file, for errors.
        level: The level in use.

    Attributes:
        level: The instructions in use, one of `LEVELS`.
        batch_free: Whether a run may have any number of samples.
        entries: Names of the tensors that a run takes.
        exits: Names of the tensors that a run returns.
        tensors: Type, shape and range of every tensor, by name.

    Examples:
        >>> from qgraph.runtime import Engine
        >>> sizes = qgraph.export("out", "engine", "engine")
        >>> engine = Engine.open("engine/network.qgi", threads=2)
        >>> len(engine.entries), engine.batch_free
        (1, True)
    """

    def __init__(self, handle: native_types.engine.Engine, path: str, level: str) -> None:
        self.native = handle
        self.level = level
        self.batch_free: bool = handle.batch_free
        self._tensors = [_tensor(row, path) for row in handle.tensors]
        self.index = {tensor.name: i for i, tensor in enumerate(self._tensors)}
        self.entries: tuple[str, ...] = tuple(self._tensors[i].name for i in handle.entries)
        self.exits: tuple[str, ...] = tuple(self._tensors[i].name for i in handle.exits)
        self.tensors = {tensor.name: tensor for tensor in self._tensors}

    @staticmethod
    def open(
        path: str | Path,
        threads: int = 1,
        level: str = "auto",
        fuse: bool = True,
        memory: int = MEMORY,
    ) -> Engine:
        """Open a `.qgi` file. No option changes a code.

        Args:
            path: Path of the file.
            threads: Threads of a run, the calling one included.
            level: Instructions: `auto` takes the best of this machine, or one of
                `qgraph.runtime.levels()`.
            fuse: Whether to compute several ops in one call where a kernel supports it.
            memory: Bytes that weights and tensors may use.

        Returns:
            The engine.

        Raises:
            LoadError: The file is damaged, or needs more memory.
            UsageError: The level is unknown, or the number of threads is out of range.
            UnsupportedError: This build or CPU does not support the level.
        """
        if not 1 <= threads <= MAX_THREADS:
            raise UsageError(f"the number of threads must be 1 to {MAX_THREADS}, not {threads}")
        native = _native()
        number = _level(native, level)
        try:
            handle = native.open(str(path), threads, number, fuse, memory)
        except native.LoadFailure as error:
            if not str(error):  # a name in it is not UTF-8: older Pythons then drop the message
                raise _no_text(str(path)) from None
            raise LoadError(str(error), node=str(path), hint="export the network again") from None
        except MemoryError:
            raise LoadError("out of memory", node=str(path), hint="a smaller network") from None
        except UnicodeDecodeError:  # in the failure's text about a tensor
            raise _no_text(str(path)) from None
        return Engine(handle, str(path), LEVELS[number + 1])

    @staticmethod
    def of(
        program: Program,
        threads: int = 1,
        level: str = "auto",
        fuse: bool = True,
        memory: int = MEMORY,
    ) -> Engine:
        """Create the engine of a program, through a temporary file.

        Args:
            program: The integer program.
            threads: As in `open`.
            level: As in `open`.
            fuse: As in `open`.
            memory: As in `open`.

        Returns:
            The engine.

        Raises:
            LoadError: The program needs more memory.
            UsageError: The level is unknown, or the number of threads is out of range.
            UnsupportedError: This build or CPU does not support the level.
        """
        with tempfile.NamedTemporaryFile(suffix=".qgi") as file:
            file.write(engine_file(program))
            file.flush()
            return Engine.open(file.name, threads, level, fuse, memory)

    def run_codes(
        self, codes: Mapping[str, Array], keep: Collection[str] | None = None
    ) -> dict[str, Array]:
        """Run the network on codes.

        Args:
            codes: Integers for every entry, by name; any number of samples if the batch is free.
            keep: Names of the tensors to return; None returns the exits.

        Returns:
            Codes by name, in the types of the tensors.

        Raises:
            GraphError: Codes are missing or do not fit, or a tensor in `keep` does not exist.
            LoadError: The memory is too small for this number of samples.
        """
        samples = self._samples(codes)
        given = [self._codes(name, codes[name], samples) for name in self.entries]
        names = list(dict.fromkeys(self.exits if keep is None else keep))
        for name in names:
            if name not in self.index:
                raise GraphError("the engine has no tensor of this name", node=name)
        results = {n: np.empty(self._shape(n, samples), self.tensors[n].dtype) for n in names}
        wanted = [self.index[name] for name in names]
        try:
            self.native.run(samples, given, wanted, list(results.values()))
        except ValueError as error:
            raise GraphError(str(error)) from None
        except (_native().LoadFailure, MemoryError) as error:
            raise LoadError(str(error) or "out of memory", hint="run fewer samples") from None
        return results

    def profile(self, samples: int = 1, runs: int = 10) -> list[tuple[str, float]]:
        """Measure the time of each call of a kernel.

        Args:
            samples: Samples of a run.
            runs: Number of runs. The fastest counts.

        Returns:
            For each call, its last tensor with its ops, and seconds.
        """
        steps = self.native.steps
        rows = self.native.profile(samples, runs)
        return [
            (f"{self._tensors[steps[of[-1]][1]].name}: {'+'.join(steps[i][0] for i in of)}", time)
            for of, time in rows
        ]

    def memory(self, samples: int = 1) -> int:
        """Compute the memory of a run.

        Args:
            samples: Samples of the run.

        Returns:
            Bytes of all tensors together, without constants.
        """
        return self.native.memory(samples)

    def _shape(self, name: str, samples: int) -> tuple[int, ...]:
        tensor = self.tensors[name]
        free = self.batch_free and not tensor.constant
        return (samples, *tensor.shape[1:]) if free else tensor.shape

    def _samples(self, codes: Mapping[str, Array]) -> int:
        for name in self.entries:
            if name not in codes:
                raise GraphError("codes of this input are missing", node=name)
        if not self.batch_free or not self.entries or not np.ndim(codes[self.entries[0]]):
            return 1
        return len(codes[self.entries[0]])

    def _codes(self, name: str, codes: Array, samples: int) -> Array:
        tensor, codes = self.tensors[name], np.asarray(codes)
        if codes.dtype.kind not in "iu":
            raise GraphError(f"codes are integers, found {codes.dtype}", node=name)
        if codes.shape != self._shape(name, samples) or not codes.size:
            wanted = self._shape(name, samples)
            raise GraphError(f"expects codes {wanted}, found {codes.shape}", node=name)
        if codes.dtype != tensor.dtype and (codes.min() < tensor.low or codes.max() > tensor.high):
            raise GraphError(f"codes are outside {tensor.low}..{tensor.high}", node=name)
        return np.ascontiguousarray(codes, tensor.dtype)


def _native() -> type[native_types.engine]:
    native = kernels.native_engine()
    if native is None:
        raise kernels.not_available("the engine")
    check_ops(native.OPS)
    return native


def check_ops(native: Sequence[str]) -> None:
    """Raise UnsupportedError if the extension was built from another list of ops.

    native: the names that it has, in the order of their codes.
    """
    known = [*OPS]
    if [*native] == known:
        return
    differing = zip_longest(known, native, fillvalue="nothing")
    ours, theirs = next(pair for pair in differing if pair[0] != pair[1])
    raise UnsupportedError(
        f"the native extension has {theirs} where qgraph has the op {ours}: it was built from "
        "other sources",
        hint="build it again: `make golden`, then `make venv`",
    )


def _level(native: type[native_types.engine], level: str) -> int:
    """The number of a level; for `auto`, of the best one of this machine."""
    if chosen(Level, level, "level") is Level.AUTO:
        return native.best_level()
    number = LEVELS.index(level) - 1
    if not native.supports(number):
        raise UnsupportedError(
            f"this machine or build has no {level}", hint="`auto` chooses the best level that works"
        )
    return number


def levels() -> Sequence[str]:
    """List the levels that this machine and build support, without `auto`.

    Returns:
        Names of levels.

    Examples:
        >>> from qgraph.runtime import levels
        >>> levels()[0]
        'plain'
    """
    native = _native()
    return [level for i, level in enumerate(LEVELS[1:]) if native.supports(i)]


def _tensor(row: Row, path: str) -> EngineTensor:
    name, storage, kind, shape, low, high = row
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise _no_text(path) from None
    return EngineTensor(text, STORAGES[storage], shape, low, high, kind == Kind.CONSTANT)


def _no_text(path: str) -> LoadError:
    return LoadError("a tensor name is not valid UTF-8", node=path, hint="export the network again")
