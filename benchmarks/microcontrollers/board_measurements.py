"""Compile a network for a board, run samples, and take flash, RAM and instructions."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.microcontrollers.boards import (
    HERE,
    Board,
    BoardRun,
    compile_objects,
    execute,
    link,
    sizes,
)
from qgraph.ir.types import Array

OPTIMIZE = ("-O2", "-ffunction-sections", "-fdata-sections")
EMPTY = """\
void prepare(void);
void infer(const void *input, void *output);

void prepare(void)
{
}

void infer(const void *input, void *output)
{
    (void)input;
    (void)output;
}
"""
ADAPTER = """\
#include "{net}.h"

void prepare(void);
void infer(const void *input, void *output);

void prepare(void)
{{
}}

void infer(const void *input, void *output)
{{
    {net}_run(input, output);
}}
"""


@dataclass(frozen=True)
class BoardMeasurement:
    """A network on a board.

    flash: bytes of code and constants; ram: bytes of data, and the stack that a run takes.
    instructions: for a sample, the mean; functions: the same by function. arena: bytes that an
    interpreter reports.
    """

    samples: int
    wrong: int
    flash: int
    data: int
    stack: int
    instructions: int
    functions: Mapping[str, int]
    arena: int = 0

    @property
    def ram(self) -> int:
        return self.data + self.stack


@dataclass(frozen=True)
class BoardProgram:
    """Objects that are linked with the harness, and whether they are C++."""

    objects: Sequence[Path]
    cpp: bool = False


Built = Callable[[Path], BoardProgram]


def measure_on_board(
    board: Board, inputs: Array, expected: Array, folder: Path, build: Built
) -> BoardMeasurement:
    """Flash and data are beyond those of the harness alone, which reads and compares files.

    build: compiles the network, with `prepare` and `infer`, in a folder.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "inputs.bin").write_bytes(inputs.tobytes())
    (folder / "expected.bin").write_bytes(expected.tobytes())
    (folder / "empty.c").write_text(EMPTY)
    lengths = (f"-DINPUT_BYTES={inputs.shape[1]}", f"-DOUTPUT_BYTES={expected.shape[1]}")
    harness = compile_objects(board, [HERE / "harness.c"], folder, ("-std=c99", "-O2", *lengths))
    empty = compile_objects(board, [folder / "empty.c"], folder, ("-std=c99", *OPTIMIZE))
    made = build(folder)
    alone = link(board, [*harness, *empty], folder / "alone.elf", cpp=made.cpp)
    whole = link(board, [*harness, *made.objects], folder / "whole.elf", cpp=made.cpp)
    flash, data = (w - a for w, a in zip(sizes(board, whole), sizes(board, alone), strict=True))
    return _measured(execute(board, whole, folder), flash, data)


def _measured(run: BoardRun, flash: int, data: int) -> BoardMeasurement:
    found = re.search(r"samples (\d+) wrong (\d+) stack (\d+)", run.printed)
    if found is None:
        raise RuntimeError(f"the harness printed {run.printed!r}")
    samples, wrong, stack = map(int, found.groups())
    each = {name: count // max(samples, 1) for name, count in run.functions.items()}
    total = run.instructions // max(samples, 1)
    arena = re.search(r"arena (\d+)", run.printed)
    return BoardMeasurement(
        samples, wrong, flash, data, stack, total, each, int(arena[1]) if arena else 0
    )


def c_program(board: Board, source: Path, flags: Sequence[str] = ()) -> Built:
    """The exported C of a network."""

    def build(folder: Path) -> BoardProgram:
        adapter = folder / "adapter.c"
        adapter.write_text(ADAPTER.format(net=source.stem))
        every = ("-std=c99", *OPTIMIZE, f"-I{source.parent}", *flags)
        return BoardProgram(compile_objects(board, [source, adapter], folder, every))

    return build
