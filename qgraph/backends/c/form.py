"""C as a form of a network: files, and a run of what was written."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qgraph.backends.c.check import check
from qgraph.backends.c.header import header
from qgraph.backends.c.layers import OPS, elements
from qgraph.backends.c.names import file_stem
from qgraph.backends.c.source import Unit, unit
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.ir.types import Array, Codes
from qgraph.program import Program
from qgraph.program.run import batch_of

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMPILERS = ("cc", "gcc", "clang")
MOST = 2**31 - 1  # bytes of a tensor, and elements, that int32 counts


def refusal(program: Program) -> str | None:
    """Why C cannot carry a program, naming the layer; None where it can."""
    for step in program.steps:
        if step.op not in OPS:
            return f"{step.output}: `{step.op}` has no C"
    for tensor in program.tensors.values():
        if elements(tensor) * np.dtype(tensor.storage).itemsize > MOST:
            return f"{tensor.name}: more than {MOST} bytes"
        if 0 in tensor.shape:
            return f"{tensor.name}: has no elements: shape {list(tensor.shape)}"
    return None


def write(program: Program, folder: Path) -> Unit:
    """`<net>.c`, `<net>.h` and `<net>_test.c` into a folder. Raises UnsupportedError."""
    why = refusal(program)
    if why is not None:
        raise UnsupportedError(why, hint="take another form of it")
    made = unit(program, file_stem(program.name))
    (folder / f"{made.net}.h").write_text(header(made), "ascii")
    (folder / f"{made.net}.c").write_text(made.text, "ascii")
    (folder / f"{made.net}_test.c").write_text(check(made), "ascii")
    return made


def compiler() -> str:
    """A C compiler of this machine. Raises UnsupportedError where there is none."""
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise UnsupportedError("no C compiler was found", hint=f"install one of {COMPILERS}")
    return found


def build(folder: Path, net: str, program: Path, flags: Sequence[str] = ("-O2",)) -> None:
    """Compile the test with the network, all warnings errors. Raises ExactnessError."""
    files = (str(folder / f"{net}.c"), str(folder / f"{net}_test.c"))
    command = [compiler(), *STRICT, *flags, *files, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExactnessError("does not compile", node=str(files[0]), hint=done.stderr[:2000])


@dataclass(frozen=True)
class Compiled:
    """A network's test, compiled: give it codes, get codes."""

    unit: Unit
    executable: Path
    traced: bool

    def __call__(self, entries: Mapping[str, Array]) -> dict[str, Codes]:
        """Codes of exits, and of every inner tensor if traced, by tensor name.

        entries: codes of every entry, N samples where the batch is free.
        """
        program, tensors = self.unit.program, self.unit.program.tensors
        samples = batch_of(program, entries)
        shapes = {name: self._shape(name, samples) for name in tensors}
        fed = [
            np.asarray(entries[p.tensor]).astype(np.dtype(tensors[p.tensor].storage).newbyteorder("<"))
            for p in self.unit.entries
        ]
        inputs = b"".join(part[i].tobytes() for i in range(samples) for part in self._samples(fed))
        answers = _run(self.executable, inputs)
        names = [p.tensor for p in self.unit.exits]
        names += self.unit.traced if self.traced else ()
        kind = [
            (f"{i}", np.dtype(tensors[n].storage).newbyteorder("<"), (elements(tensors[n]),))
            for i, n in enumerate(names)
        ]
        rows: Any = np.frombuffer(answers, np.dtype(kind))
        return {
            name: rows[f"{i}"].astype(np.int64).reshape(shapes[name])
            for i, name in enumerate(names)
        }

    def _shape(self, name: str, samples: int) -> tuple[int, ...]:
        shape = self.unit.program.tensors[name].shape
        return (samples, *shape[1:]) if self.unit.program.batch_free else shape

    def _samples(self, fed: Sequence[Array]) -> Sequence[Any]:
        return fed if self.unit.program.batch_free else [part[None] for part in fed]


def _run(executable: Path, inputs: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "inputs"), Path(folder, "answers")
        files[0].write_bytes(inputs)
        command = [str(executable), *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr:
            raise ExactnessError("the compiled C failed", hint=done.stderr[:2000])
        return files[1].read_bytes()
