"""`qgraph run`: run a quantized network on the integer engine."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qgraph.choices import Level
from qgraph.cli.options import OUTPUT_DIRECTORY, Json, LevelOption, Threads

if TYPE_CHECKING:
    from qgraph.ir.types import Array

BATCH = 32
SHOWN = 5


def run(
    directory: Annotated[Path, typer.Argument(help=OUTPUT_DIRECTORY)],
    inputs: Annotated[
        Path, typer.Option("--input", "-i", metavar="FILE", help="Inputs, as a .npy or .npz file.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the outputs to this .npz file."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Run only the first N inputs.")
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of samples computed at once.")
    ] = BATCH,
    threads: Threads = 1,
    level: LevelOption = Level.AUTO,
    as_json: Json = False,
) -> None:
    """Run a quantized network in integer arithmetic, without TensorFlow.

    The outputs equal those of every exported form, bit for bit. A network with states takes
    sequences, [n, steps, ...], and carries its states from step to step.
    """
    from qgraph.cli.console import console, print_next, print_table, print_warnings
    from qgraph.evaluation.input_ranges import other_scale
    from qgraph.ir.states import states_of
    from qgraph.quant.samples.data import converted, load_data
    from qgraph.quant.samples.sequences import sequence_inputs
    from qgraph.runtime import Session
    from qgraph.stored import load_samples

    session = Session.open(directory, threads, level)
    carried = bool(states_of(session.graph))
    taken = sequence_inputs(session.graph) if carried else session.graph
    data = converted(session.graph, load_data(inputs, taken, limit, what="the input data"))
    samples = len(next(iter(data.values())))
    begin = time.perf_counter()
    found = session.stream(samples).run(data) if carried else session.run(data, batch)
    seconds = time.perf_counter() - begin
    if output is not None:
        _write(output, found)
    warnings = other_scale(data, load_samples(directory))
    if as_json:
        facts = _facts(session.level, threads, samples, seconds, found)
        print(json.dumps({**facts, "warnings": warnings}))
        return
    rows = [(name, str(list(array.shape)), _beginning(array)) for name, array in found.items()]
    print_table(f"outputs of {directory}", ("name", "=shape", "first sample"), rows)
    on = f"{session.level}, {threads} thread{'s' * (threads > 1)}"
    out = console()
    out.print(f"{seconds / samples * 1e3:.3f} ms per sample, {samples} samples ({on})")
    if output is None:
        print_next(["run", str(directory), "--input", str(inputs), "-o", "outputs.npz"])
    else:
        out.print(f"written to {output}", soft_wrap=True)
        print_next(["verify", str(directory)])
    print_warnings(warnings)


def _write(path: Path, found: Mapping[str, Array]) -> None:
    from qgraph.files import write_whole
    from qgraph.npz import npz_bytes

    write_whole(path, npz_bytes(found))


def _facts(
    level: str, threads: int, samples: int, seconds: float, found: Mapping[str, Array]
) -> dict[str, object]:
    return {
        "level": level,
        "threads": threads,
        "samples": samples,
        "milliseconds_a_sample": round(seconds / samples * 1e3, 4),
        "outputs": {name: list(array.shape) for name, array in found.items()},
    }


def _beginning(array: Array) -> str:
    first = array[0].ravel() if array.ndim else array.ravel()
    shown = ", ".join(f"{value:.5g}" for value in first[:SHOWN])
    return f"{shown}{', ...' if first.size > SHOWN else ''}"
