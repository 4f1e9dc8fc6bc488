"""Run a program's C on an emulated microcontroller."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.microcontrollers.boards import BOARDS, Board
from qgraph.backends.c.c_form import STRICT, packed, write_program
from qgraph.backends.c.source import CUnit
from qgraph.program import Program
from qgraph.program.layers import elements

START = """\
int test_main(int count, char **words);

int main(void)
{
    char *words[] = {"net", "inputs.bin", "outputs.bin"};

    return test_main(3, words);
}
"""


def board(name: str) -> Board:
    """A board by name; the test is skipped if its compiler or emulator is not installed."""
    found = BOARDS[name]
    if found.missing:
        pytest.skip(f"not installed: {', '.join(found.missing)}")
    return found


@dataclass(frozen=True)
class OnBoard:
    """A program that was compiled for a board: from codes to codes of its exits, or of all tensors.

    Warnings are errors.
    """

    board: Board
    unit: CUnit
    folder: Path
    traced: bool

    def __call__(self, codes: dict) -> dict:
        program = self.unit.program
        names = [port.tensor for port in self.unit.exits]
        names += self.unit.traced if self.traced else ()
        entries = [port.tensor for port in self.unit.entries]
        (self.folder / "inputs.bin").write_bytes(packed(self.unit, entries, codes))
        machine = self.board.machine
        command = [
            self.board.emulator,
            *machine,
            "-nographic",
            "-semihosting",
            "-kernel",
            "net.elf",
        ]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        tensors = [program.tensors[name] for name in names]
        kinds = [np.dtype(t.storage).newbyteorder("<") for t in tensors]
        row = [(str(i), kinds[i], (elements(t),)) for i, t in enumerate(tensors)]
        rows = np.frombuffer((self.folder / "outputs.bin").read_bytes(), np.dtype(row))
        return {
            name: rows[str(i)].astype(np.int64).reshape(-1, *tensors[i].shape[1:])
            for i, name in reversed([*enumerate(names)])
        }


def on_board(program: Program, name: str, folder: Path, flags=(), traced: bool = False) -> OnBoard:
    """Compile a program, whose batch is free, for a board."""
    place = board(name)
    unit = write_program(program, folder)
    trace = [f"-D{unit.net.upper()}_TRACE"] if traced else []
    compiler, objects = [f"{place.prefix}-gcc", *place.flags, "-O2"], []
    for stem in (unit.net, f"{unit.net}_test"):
        objects.append(folder / f"{stem}.o")
        renamed = "-Dmain=test_main"  # boards have no command line
        command = [*compiler, *STRICT, renamed, *flags, *trace, "-c", folder / f"{stem}.c", "-o"]
        subprocess.run([*command, objects[-1]], check=True)
    (folder / "start.c").write_text(START)
    objects.append(folder / "start.c")
    command = [*compiler, *place.files, *objects, *place.link, "-o", folder / "net.elf"]
    subprocess.run(command, check=True)
    return OnBoard(place, unit, folder, traced)
