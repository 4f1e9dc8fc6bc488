"""Time the calibration of MobileNetV1 beside plain float inference of the same images.

    python -m benchmarks.calibration_time [--images 50] [--repeats 5] [--json FILE]

Both run in turn in one process, after a warm-up; the table has medians and their ratio. Plain float
inference is the original frozen graph in TensorFlow on all cores and, beside it, the folded graph
in qgraph's numpy interpreter.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks import assets
from benchmarks.result import add_json_option, report
from benchmarks.tables import Table
from qgraph.backends.tf.program import TFProgram
from qgraph.frontends import load
from qgraph.interpret import evaluate
from qgraph.ir.types import Array
from qgraph.passes import PassManager
from qgraph.quant.calibrate import Calibration, calibrate
from qgraph.quant.profile import load_profile
from qgraph.recipes import FLOAT, insert

OUTPUT = "MobilenetV1/Predictions/Reshape"


def images(count: int) -> Array:
    """Photographs as the network takes them, repeated if there are fewer than `count`."""
    photographs, _ = assets.imagenet_images(224)
    scaled = photographs.astype(np.float32) / 127.5 - 1
    repeated: Array = np.concatenate([scaled] * (count // len(scaled) + 1))
    return repeated[:count]


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--method", default="kl_j")
    add_json_option(parser)
    options = parser.parse_args()

    data = images(options.images)
    path = assets.mobilenet_v1()
    original = TFProgram(path)
    folded = load(path, outputs=[OUTPUT])
    PassManager(FLOAT).run(folded)
    quantized = folded.copy()
    PassManager(insert(load_profile("graffitist-int8"))).run(quantized)

    def tensorflow() -> None:
        for image in data:
            original.run({"input": image[None]}, [OUTPUT])

    def interpreter() -> None:
        for image in data:
            evaluate(folded, {"input": image[None]})

    def sweep() -> None:
        calibrate(quantized.copy(), {"input": data}, Calibration(options.method))

    variants = {"TensorFlow float": tensorflow, "numpy float": interpreter, "calibration": sweep}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for round_ in range(options.repeats + 1):
        for name, run in variants.items():
            taken = seconds(run)
            if round_:
                times[name].append(taken)
    medians = {name: statistics.median(found) for name, found in times.items()}
    table = Table(
        f"Calibration of MobileNetV1 with {len(data)} images",
        {"run": "", "median s": ".2f", "min s": ".2f", "max s": ".2f", "ratio": ".2f"},
        notes=[f"{options.repeats} runs in turns; ratio: to TensorFlow's float inference"],
    )
    for name, found in times.items():
        ratio = medians[name] / medians["TensorFlow float"]
        table.add(name, medians[name], min(found), max(found), ratio)
    report("benchmarks.calibration_time", [table], options.json)


if __name__ == "__main__":
    main()
