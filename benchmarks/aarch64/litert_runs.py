"""Run one-layer networks in LiteRT, for the counts of `instruction_marks.c`.

    python litert_runs.py RUNS FOLDER...

A folder has `network.tflite` and the codes `input*.npy`; the output is written to `litert.npy`. A
call of `os.getppid` before and after the runs of a network marks the counts. It needs only numpy
and ai-edge-litert, so it runs in a Python for another processor.
"""

import os
import sys
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter


def run(folder: Path, runs: int) -> None:
    """Run a network `runs` times between two marks."""
    made = Interpreter(str(folder / "network.tflite"), num_threads=1)
    made.allocate_tensors()
    files = sorted(folder.glob("input*.npy"))
    for about, file in zip(made.get_input_details(), files, strict=True):
        made.set_tensor(about["index"], np.load(file).astype(about["dtype"]))
    made.invoke()
    invoke, mark = made.invoke, os.getppid
    mark()
    for _ in range(runs):
        invoke()
    mark()
    (result,) = made.get_output_details()
    np.save(folder / "litert.npy", made.get_tensor(result["index"]))


if __name__ == "__main__":
    for path in sys.argv[2:]:
        run(Path(path), int(sys.argv[1]))
