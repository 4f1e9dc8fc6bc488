"""Count the engine's instructions on 64-bit Arm: ``python -m benchmarks.aarch64.instructions``.

Layers of MobileNetV1 and of a residual network run in the engine and in LiteRT with XNNPACK, both
emulated by QEMU (`apt install qemu-user`). The emulation counts instructions but not cycles. The
output of both is compared with the integer program, code by code.

ENGINE is `engine_runs`, which `make test-aarch64` builds in build/native-aarch64. ROOT is a folder
with Debian's packages for arm64 of Python 3.11, libc and libstdc++, unpacked (`dpkg -x`). SITE is a
folder with the wheels for it of ai-edge-litert, numpy and flatbuffers, unpacked
(`pip download --platform manylinux_2_28_aarch64 --only-binary=:all:`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.aarch64.emulated_runs import HERE, PROCESSORS, Emulator, Processor
from benchmarks.aarch64.layer_networks import LAYERS, SEED, LayerFiles, written
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table
from qgraph.kernels import NATIVE_LEVELS

RUNS = 10
OURS, PEER = "qgraph", "XNNPACK"
COLUMNS = {
    "processor": "", "layer": "", "by": "", "instructions": ",", "a product": ".3f",
    "codes": ",", "different": "",
}  # fmt: skip


def measured(
    processor: Processor,
    emulator: Emulator,
    files: list[LayerFiles],
    engine: Path,
    site: Path | None,
) -> Iterator[tuple[str, list[int], list[int]]]:
    """Counts of a run, and codes that differ from the program, of each layer."""
    folders = [str(one.folder) for one in files]
    level = str(NATIVE_LEVELS.index(processor.level))
    command = [str(engine), level, str(RUNS), *folders]
    yield (
        OURS,
        emulator.counts(processor, command),
        [int(np.sum(one.by_engine != one.expected)) for one in files],
    )
    if site is None:
        return
    python = str(emulator.root / "usr/bin/python3.11")
    command = [python, str(HERE / "litert_runs.py"), str(RUNS), *folders]
    yield (
        PEER,
        emulator.counts(processor, command, {"PYTHONPATH": str(site)}),
        [int(np.sum(one.by_litert != one.expected)) for one in files],
    )


def counted(engine: Path, root: Path, site: Path | None, folder: Path) -> Table:
    """A row for each processor, layer and program."""
    made = Table("Instructions of a layer", COLUMNS)
    files = []
    for number, layer in enumerate(LAYERS):
        place = folder / str(number)
        place.mkdir()
        files.append(written(layer, place))
    emulator = Emulator(root, folder)
    for processor in PROCESSORS:
        for by, counts, different in measured(processor, emulator, files, engine, site):
            for layer, count, wrong, one in zip(LAYERS, counts, different, files, strict=True):
                rounded = round(count / RUNS)
                a_product = rounded / layer.multiplications
                made.add(
                    processor.name, str(layer), by, rounded, a_product, one.expected.size, wrong
                )
    made.notes.append("counts of XNNPACK include the call of a network in LiteRT from Python")
    made.notes.append("counts of qgraph include copies of the input and of the output")
    return made


def main(
    engine: Annotated[Path, typer.Option(help="Program engine_runs for 64-bit Arm.")],
    root: Annotated[Path, typer.Option(help="Folder with libraries of 64-bit Arm.")],
    site: Annotated[
        Path | None, typer.Option(help="Folder with LiteRT and numpy; without it, it is left out.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Count instructions and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        made = counted(engine, root, site, Path(folder))
    report("benchmarks.aarch64.instructions", [made], json_file, seeds=(SEED,))


if __name__ == "__main__":
    typer.run(main)
