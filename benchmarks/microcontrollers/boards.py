"""Emulated microcontrollers: how to compile for them, and how to run and count instructions."""

from __future__ import annotations

import bisect
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
STARTUP = HERE.parents[1] / "examples/microcontroller"
BEGIN, END = "measure_begin", "measure_end"


@dataclass(frozen=True)
class Board:
    """A processor that QEMU emulates.

    flags: for the compiler; link: for the linker; files: what starts a program.
    """

    name: str
    prefix: str
    flags: tuple[str, ...]
    link: tuple[str, ...]
    files: tuple[Path, ...]
    emulator: str
    machine: tuple[str, ...]

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that it needs."""
        return f"{self.prefix}-gcc", self.emulator

    @property
    def missing(self) -> list[str]:
        """Those of its programs that are not installed."""
        return [name for name in self.programs if shutil.which(name) is None]

    def tool(self, name: str) -> str:
        return f"{self.prefix}-{name}"


def _cortex(name: str, flags: Sequence[str], machine: str, memory: str) -> Board:
    return Board(
        name, "arm-none-eabi", ("-mthumb", *flags),
        ("--specs=rdimon.specs", "-T", str(STARTUP / memory)), (STARTUP / "board.c",),
        "qemu-system-arm", ("-M", machine),
    )  # fmt: skip


_PICOLIBC = ("--specs=picolibc.specs", "--oslib=semihost")
_RAM = {"flash": 0x80000000, "flash_size": 0x400000, "ram": 0x80400000, "ram_size": 0x400000}
BOARDS: Mapping[str, Board] = {
    board.name: board
    for board in (
        _cortex("Cortex-M4", ("-mcpu=cortex-m4",), "mps2-an386", "mps2.ld"),
        _cortex(
            "Cortex-M55", ("-mcpu=cortex-m55", "-mfloat-abi=hard"), "mps3-an547", "mps3.ld"
        ),
        Board(
            "RV32IMAC", "riscv64-unknown-elf",
            ("-march=rv32imac", "-mabi=ilp32", "-mcmodel=medany", *_PICOLIBC),
            ("--crt0=hosted", *(f"-Wl,--defsym=__{k}={v:#x}" for k, v in _RAM.items())),
            (), "qemu-system-riscv32", ("-M", "virt", "-bios", "none"),
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class BoardRun:
    """The output of a program, and its instructions by function, of all samples together."""

    printed: str
    functions: Mapping[str, int]

    @property
    def instructions(self) -> int:
        return sum(self.functions.values())


def compile_objects(
    board: Board, files: Sequence[Path], folder: Path, flags: Sequence[str]
) -> list[Path]:
    """Compile each file to an object, unless it is there already."""
    made = []
    for number, file in enumerate(files):
        target = folder / f"{file.stem}-{number}.o"
        made.append(target)
        if target.exists():
            continue
        program = board.tool("g++" if file.suffix == ".cc" else "gcc")
        call([program, *board.flags, *flags, "-c", str(file), "-o", str(target)])
    return made


def link(board: Board, objects: Sequence[Path], target: Path, *, cpp: bool = False) -> Path:
    """Link a program without the functions that nothing calls."""
    starts = compile_objects(board, board.files, target.parent, ("-O2",))
    program = board.tool("g++" if cpp else "gcc")
    held = [str(file) for file in (*starts, *objects)]
    call([program, *board.flags, "-Wl,--gc-sections", *held, *board.link, "-o", str(target)])
    return target


def sizes(board: Board, program: Path) -> tuple[int, int]:
    """Bytes of a program in flash (code, constants, initial values), and of its data in RAM."""
    words = call([board.tool("size"), str(program)]).splitlines()[1].split()
    text, data, bss = map(int, words[:3])
    return text + data, data + bss


def execute(board: Board, program: Path, folder: Path) -> BoardRun:
    """Run a program in a folder and count the instructions between the two markers."""
    symbols = symbols_of(board, program)
    begin, end = (next(a for a, name in symbols if name == mark) for mark in (BEGIN, END))
    counts = folder / "instructions.txt"
    plugin = f"{counting_plugin(folder)},begin={begin:#x},end={end:#x},to={counts}"
    command = [
        board.emulator, *board.machine, "-nographic", "-semihosting", "-kernel", str(program),
        "-plugin", plugin,
    ]  # fmt: skip
    printed = call(command, folder, errors=True)
    return BoardRun(printed, _by_function(symbols, counts.read_text("ascii")))


def symbols_of(board: Board, program: Path) -> list[tuple[int, str]]:
    """Functions by address, in its order; the lowest bit, which marks Thumb code, is cleared."""
    lines = call([board.tool("nm"), "-n", str(program)]).splitlines()
    rows = [line.split() for line in lines]
    return [
        (int(row[0], 16) & ~1, row[2])
        for row in rows
        if len(row) == 3 and row[1] in "tTwW" and not row[2].startswith("$")
    ]


def _by_function(symbols: Sequence[tuple[int, str]], counts: str) -> Mapping[str, int]:
    starts = [address for address, _ in symbols]
    found: Counter[str] = Counter()
    for line in counts.splitlines():
        address, length, runs = map(int, line.split())
        found[symbols[bisect.bisect(starts, address) - 1][1]] += length * runs
    return found


def counting_plugin(folder: Path) -> Path:
    """The compiled plugin of QEMU that counts instructions."""
    target = folder / "instruction_count.so"
    if not target.exists():
        source = str(HERE / "instruction_count.c")
        call(["cc", "-O2", "-shared", "-fPIC", source, "-o", str(target)])
    return target


def call(command: Sequence[str], folder: Path | None = None, *, errors: bool = False) -> str:
    """Run a program and return what it prints. Raises RuntimeError if it fails.

    errors: whether standard error is part of it; semihosting prints to either.
    """
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr[-3000:] or done.stdout[-3000:]
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{said}")
    return done.stdout + done.stderr if errors else done.stdout
