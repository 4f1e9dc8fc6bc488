"""Exported C on emulated microcontrollers: bits, flash, RAM and instructions.

    python -m benchmarks.microcontrollers.table [--peers FOLDER] [--work FOLDER] [--json FILE]

Four networks with the layers and sizes of MLPerf Tiny's are quantized with random weights,
compiled, and run by QEMU on a Cortex-M4, a Cortex-M55 and a RISC-V core. A plugin of QEMU counts
every instruction that a run executes. Outputs are compared with the integer reference. Instructions
are not cycles: a load, a product or a vector may take several.

It needs `apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm
gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc`. Peers are built from sources
in FOLDER, if it is given (`tflm_peer.py`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.microcontrollers.board_measurements import (
    BoardMeasurement,
    c_program,
    measure_on_board,
)
from benchmarks.microcontrollers.boards import BOARDS, Board
from benchmarks.microcontrollers.quantized_tiny import SEED, PreparedNetwork, prepared
from benchmarks.microcontrollers.tflm_peer import ARENA, tflm_program
from benchmarks.microcontrollers.tiny_networks import TINY_NETWORKS
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.records import from_json, to_json

PEERS = {"TFLM, CMSIS-NN": True, "TFLM, reference": False}
NOTES = (
    "different: bytes of outputs that are not those of the integer reference; a product: "
    "instructions for a multiplication of a weight"
)
ARM_BOARDS = [name for name, board in BOARDS.items() if board.prefix.startswith("arm")]
MARGINS = 64, 8192, 16384, 32768  # bytes of an arena beyond those that it reports
REFERENCE_BOARD = "Cortex-M4"  # reference kernels are plain C++, and slow to emulate
TITLE = "C on microcontrollers"
COLUMNS = {
    "network": "", "processor": "", "by": "", "different": ",.0f", "instructions": ",.0f",
    "a product": ".2f", "flash, kB": ".1f", "RAM, kB": ".1f", "of that, stack, B": ",.0f",
}  # fmt: skip


def variants(
    board: Board, network: PreparedNetwork, folder: Path, peers: Path | None, before: Path | None
) -> Iterator[tuple[str, BoardMeasurement]]:
    """Each way to run a network on a board, by name."""
    ours = network.inputs, network.expected
    yield "qgraph", measure_on_board(board, *ours, folder / "c", c_program(board, network.source))
    plain = c_program(board, network.source, [f"-D{network.name.upper()}_PLAIN"])
    arm = board.prefix.startswith("arm")
    if arm:
        yield "qgraph, plain C", measure_on_board(board, *ours, folder / "plain", plain)
    if before is not None:
        earlier = c_program(board, before / f"{network.name}.c")
        yield "qgraph, before", measure_on_board(board, *ours, folder / "before", earlier)
    if peers is None:
        return
    library = folder.parents[1] / "libraries" / board.name.lower()
    for by, cmsis in PEERS.items():
        if not cmsis and board.name != REFERENCE_BOARD:
            continue
        place = folder / by.split()[-1].lower()
        yield by, measured_peer(board, network, place, peers, library, cmsis)


def measured_peer(
    board: Board, network: PreparedNetwork, folder: Path, peers: Path, library: Path, cmsis: bool
) -> BoardMeasurement:
    """TFLM on the same codes, with the smallest arena that it takes; measured once for a folder."""
    known = folder / "measured.json"
    if known.exists():
        return from_json(BoardMeasurement, json.loads(known.read_text("ascii")))

    def measured(samples: int, arena: int) -> BoardMeasurement:
        build = tflm_program(board, network.tflite, peers, library, cmsis=cmsis, arena=arena)
        given = network.tflite_inputs[:samples], network.tflite_expected[:samples]
        return measure_on_board(board, *given, folder, build)

    found = measured(0, ARENA)
    for more in MARGINS:
        try:
            found = measured(len(network.tflite_inputs), found.arena + more)
            break
        except RuntimeError:  # a fault, because the arena is too small to prepare the network
            if more == MARGINS[-1]:
                raise
    known.write_text(json.dumps(to_json(found)))
    return found


def table(
    work: Path,
    only: str,
    boards: list[str],
    peers: Path | None,
    peers_on: list[str],
    before: Path | None,
) -> Table:
    found = Table(TITLE, COLUMNS, notes=[NOTES])
    for name in TINY_NETWORKS:
        if only and only not in name:
            continue
        folder = work / name
        folder.mkdir(parents=True, exist_ok=True)
        network = prepared(name, folder)
        for board in (BOARDS[b] for b in boards):
            if board.missing:
                print(f"{board.name}: not installed: {', '.join(board.missing)}")
                continue
            place, known = folder / board.name.lower(), peers if board.name in peers_on else None
            for by, one in variants(board, network, place, known, before):
                found.add(
                    name, board.name, by, one.wrong, one.instructions,
                    one.instructions / network.products, one.flash / 1e3, one.ram / 1e3, one.stack,
                )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="networks with this in their names")
    parser.add_argument("--board", action="append", choices=BOARDS, help="default: all")
    parser.add_argument("--peers", type=Path, help="folder with sources of TFLM and CMSIS-NN")
    parser.add_argument(
        "--peers-on", action="append", choices=ARM_BOARDS, help="default: all boards of Arm"
    )
    parser.add_argument("--before", type=Path, help="folder with C that an earlier version wrote")
    parser.add_argument("--work", type=Path, help="folder that keeps networks and programs")
    add_json_option(parser)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        work = (chosen.work or Path(place)).resolve()
        boards, peers_on = chosen.board or [*BOARDS], chosen.peers_on or [*ARM_BOARDS]
        made = table(work, chosen.only, boards, chosen.peers, peers_on, chosen.before)
        report("benchmarks.microcontrollers.table", [made], chosen.json, seeds=(SEED,))


if __name__ == "__main__":
    main()
