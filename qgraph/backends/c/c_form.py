"""C as a form of a network: write the files, and run them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from qgraph.backends.c.check import check
from qgraph.backends.c.header import header
from qgraph.backends.c.layer_functions import LOWERINGS
from qgraph.backends.c.layouts import lay_out, placed
from qgraph.backends.c.source import CUnit, unit
from qgraph.backends.network_forms import Network, Runner
from qgraph.choices import CodeLayout, chosen
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.exact.reference import Reference
from qgraph.ir.types import Array, Codes, Fixed
from qgraph.names import file_stem
from qgraph.ops.lowerings import Lowerings
from qgraph.program import Program, Tensor, run
from qgraph.program.islands import Island, islands
from qgraph.program.layers import elements
from qgraph.program.run import batch_of

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMPILERS = ("cc", "gcc", "clang")
SPREAD = 97  # from one code to the next
MAX_INT32 = 2**31 - 1  # largest number of bytes and of elements of a tensor, for int32


@dataclass(frozen=True)
class CForm:
    """A .c, a .h, a test program, and a sample with its expected outputs.

    layout: a layout of folders around them, with an example that runs the sample.
    """

    layout: str | None = None
    name: ClassVar[str] = "c"
    lowerings: ClassVar[Lowerings[object]] = LOWERINGS

    def __post_init__(self) -> None:
        if self.layout is not None:
            chosen(CodeLayout, self.layout, "layout")

    def refusal(self, network: Network) -> str | None:
        if self.layout is not None and network.program.has_islands:
            return (
                f"layout {self.layout} has an example of one function, and float ops lie between "
                "functions of this network; leave --layout out"
            )
        return refused(network.program)

    def write(self, network: Network, folder: Path) -> None:
        made = write_program(network.program, folder, islands(network.graph, network.program))
        if not network.sample and self.layout is None:
            return
        names = [entry.tensor for entry in network.program.entries]
        exits = [port.tensor for port in made.exits]
        codes = sample_codes(network)
        outputs = run(network.program, codes, exits)
        if network.sample:
            (folder / f"{made.net}_inputs.bin").write_bytes(packed(made, names, codes))
            (folder / f"{made.net}_outputs.bin").write_bytes(packed(made, exits, outputs))
        if self.layout is not None:
            lay_out(CodeLayout(self.layout), made, folder, {**codes, **outputs})

    def renamed(self, network: Network) -> Mapping[str, str]:
        made = unit(network.program, file_stem(network.program.name))
        ports = {port.tensor: port.name for port in (*made.entries, *made.exits)}
        arrays = {array.name for array in made.data}  # packed weights are not among them
        return {
            name: held
            for name, held in {**made.identifiers, **ports}.items()
            if held != name and (held in arrays or name not in network.program.constants)
        }

    def runner(self, network: Network, folder: Path) -> Runner:
        """A runner that returns every tensor. Raises UnsupportedError without a compiler."""
        made = unit(network.program, file_stem(network.program.name))
        place = tempfile.TemporaryDirectory(prefix="qgraph-")
        executable = Path(place.name, "test")
        build(folder, made.net, executable, ("-O2", f"-D{made.net.upper()}_TRACE"))
        return Compiled(made, executable, True, place)

    def executor(self) -> str:
        return compiler_title()


def sample_codes(network: Network) -> Mapping[str, Codes]:
    """Codes of entries from the network's sample; without one, some of their whole ranges."""
    names = [entry.tensor for entry in network.program.entries]
    if network.sample:
        values = Reference(network.graph).run(network.sample, names)
        return {n: v.codes for n, v in values.items() if isinstance(v, Fixed)}
    tensors = {name: network.program.tensors[name] for name in names}
    return {name: _spread(tensor) for name, tensor in tensors.items()}


def _spread(tensor: Tensor) -> Codes:
    """Codes of one sample that are spread over the range of a tensor."""
    places: Codes = SPREAD * np.arange(elements(tensor), dtype=np.int64)
    return (tensor.low + places % (tensor.high - tensor.low + 1)).reshape(tensor.shape)


def refused(program: Program) -> str | None:
    """The reason why C cannot represent a program, with the layer; None if it can."""
    for step in program.steps:
        if step.op not in LOWERINGS.lowered:
            return f"{step.output}: {LOWERINGS.refusal(step.op, step.output).reason}"
    for tensor in program.tensors.values():
        if elements(tensor) * np.dtype(tensor.storage).itemsize > MAX_INT32:
            return f"{tensor.name}: more than {MAX_INT32} bytes"
        if 0 in tensor.shape:
            return f"{tensor.name}: has no elements: shape {list(tensor.shape)}"
    return None


def write_program(program: Program, folder: Path, between: Sequence[Island] = ()) -> CUnit:
    """Write `<net>.c`, `<net>.h` and `<net>_test.c` into a folder. Raises UnsupportedError.

    between: the float islands of the network.
    """
    why = refused(program)
    if why is not None:
        raise UnsupportedError(why, hint="choose another export format")
    made = unit(program, file_stem(program.name))
    (folder / f"{made.net}.h").write_text(header(made, between), "ascii")
    (folder / f"{made.net}.c").write_text(made.text, "ascii")
    (folder / f"{made.net}_test.c").write_text(check(made), "ascii")
    return made


def compiler() -> str:
    """The path of a C compiler on this machine. Raises UnsupportedError if there is none."""
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        hint = f"install one of {', '.join(COMPILERS)}"
        raise UnsupportedError("no C compiler was found", hint=hint)
    return found


def compiler_title() -> str:
    """The C compiler with its version, such as `gcc 12.2.0`. Raises UnsupportedError."""
    command = [compiler(), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return titled_compiler(said)


def titled_compiler(said: str) -> str:
    """Name and version of a compiler, from its output for `--version`."""
    first = said.partition("\n")[0]
    version = re.search(r"(?:version|\)) (\d+(?:\.\d+)+)", first)
    name = "clang" if "clang" in first else "gcc"
    return f"{name} {version[1]}" if version else "C compiler"


def build(folder: Path, net: str, program: Path, flags: Sequence[str] = ("-O2",)) -> None:
    """Compile the test with the network; warnings are errors. Raises ExactnessError."""
    files = [str(placed(folder, f"{net}{end}.c")) for end in ("", "_test")]
    headers = f"-I{placed(folder, f'{net}.h').parent}"
    command = [compiler(), *STRICT, *flags, headers, *files, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExactnessError("does not compile", node=str(files[0]), hint=done.stderr[:2000])


@dataclass(frozen=True)
class Compiled:
    """The compiled test of a network: a function from codes to codes."""

    unit: CUnit
    executable: Path
    traced: bool
    place: object = None  # the temporary folder of the executable, kept while this object exists

    def __call__(self, entries: Mapping[str, Array]) -> dict[str, Codes]:
        """Codes of exits, and of every inner tensor if traced, by tensor name.

        entries: codes of every entry, N samples if the batch is free.
        """
        program = self.unit.program
        inputs = packed(self.unit, [p.tensor for p in self.unit.entries], entries)
        names = [p.tensor for p in self.unit.exits]
        names += self.unit.traced if self.traced else ()
        tensors = [program.tensors[name] for name in names]
        row = [(f"{i}", _stored(t), (elements(t),)) for i, t in enumerate(tensors)]
        rows: Array = np.frombuffer(_run(self.executable, inputs), np.dtype(row))
        samples = batch_of(program, entries)
        # Exits are first and set last, so that the stored codes are returned, not the traced ones.
        return {
            name: rows[f"{i}"].astype(np.int64).reshape(self._shape(name, samples))
            for i, name in reversed([*enumerate(names)])
        }

    def _shape(self, name: str, samples: int) -> tuple[int, ...]:
        shape = self.unit.program.tensors[name].shape
        return (samples, *shape[1:]) if self.unit.program.batch_free else shape


def packed(unit: CUnit, names: Sequence[str], codes: Mapping[str, Array]) -> bytes:
    """Tensors as in the test's files: sample by sample, all tensors of a sample in a row."""
    program = unit.program
    parts = [np.asarray(codes[n]).astype(_stored(program.tensors[n])) for n in names]
    if not program.batch_free:
        return b"".join(part.tobytes() for part in parts)
    return b"".join(part[i].tobytes() for i in range(len(parts[0])) for part in parts)


def _stored(tensor: Tensor) -> np.dtype[np.generic]:
    return np.dtype(tensor.storage).newbyteorder("<")


def _run(executable: Path, inputs: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "inputs"), Path(folder, "outputs")
        files[0].write_bytes(inputs)
        command = [str(executable), *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr:
            raise ExactnessError("the compiled C failed", hint=done.stderr[:2000])
        return files[1].read_bytes()
