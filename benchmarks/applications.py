"""Networks of `keras.applications` and `tf_keras.applications`:
``python -m benchmarks.applications [--only NAME] [--json FILE]``.

The smallest network of each family, with random weights, at the smallest image that it takes, is
saved, read, quantized and verified. Each network runs in a separate process, with limits of memory
and time. An interrupted run continues where it was.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.real.resumed import Part, resumed
from benchmarks.result import ROOT, JsonFile, report
from benchmarks.tables import Table
from qgraph.errors import QGraphError
from qgraph.ir.types import Array

TITLE = "Networks of Keras"
BOTH = (
    "MobileNet", "MobileNetV2", "MobileNetV3Small", "VGG16", "ResNet50", "ResNet50V2",
    "EfficientNetB0", "EfficientNetV2B0", "ConvNeXtTiny", "DenseNet121", "Xception",
    "InceptionV3", "InceptionResNetV2", "NASNetMobile",
)  # fmt: skip
OF_KERAS_2 = ("RegNetX002", "RegNetY002", "ResNetRS50")
NETWORKS = [
    *(f"{library} {name}" for name in BOTH for library in ("keras", "tf_keras")),
    *(f"tf_keras {name}" for name in OF_KERAS_2),
]
SUFFIX = {"keras": "keras", "tf_keras": "h5"}
SIZES = (32, 64, 71, 75, 96, 128, 224)  # of images; networks refuse those that are too small
CLASSES = 10
CALIBRATION, COMPARED = 8, 2
FORMS = ("tensorflow", "engine")
MEMORY, SECONDS = 14 << 30, 3600
COLUMNS = {
    "network": "", "library": "", "image": "d", "layers": "d", "stayed float": "", "SQNR dB": ".1f",
    "differ from reference": "", "quantize, CPU s": ".1f", "verify, CPU s": ".1f", "refused": "",
}  # fmt: skip


def table(only: list[str]) -> Table:
    """A row for each network."""
    parts: dict[str, Callable[[], Part]] = {
        name: partial(_in_own_process, name) for name in only or NETWORKS
    }
    forms = " and ".join(f"`{form}`" for form in FORMS)
    made = Table(TITLE, COLUMNS, notes=[
        "graffitist-int8, effort plain: 8 bits, one power-of-two scale per tensor",
        f"differ from reference: elements of {forms} together, over {COMPARED} samples, random "
        "codes and codes at the ends of their ranges; CPU s: of all threads, file read included",
    ])  # fmt: skip
    for part in resumed("applications", parts, ["1"]):
        made.rows += [dict(zip(COLUMNS, row, strict=True)) for row in part.rows]
    return made


def _in_own_process(name: str) -> Part:
    """The row of a network, or the reason why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.applications",
            "--only",
            name,
            "--row",
            f"{file}",
        ]
        child = subprocess.Popen(command, cwd=ROOT, start_new_session=True, preexec_fn=_limit)
        try:
            child.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if file.exists():
            return Part([json.loads(file.read_text("utf-8"))], "")
    reason = f"not finished in {SECONDS} s" if child.returncode == -signal.SIGKILL else (
        f"ended with code {child.returncode}; it may use {MEMORY >> 30} GiB"
    )  # fmt: skip
    return Part([_row(name, None, None, reason)], "")


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _row(name: str, size: int | None, found: list[Any] | None, reason: str) -> list[Any]:
    library, network = name.split()
    return [network, library, size, *(found or [None] * 6), reason or None]


def measured(name: str) -> list[Any]:
    """The row of a network, measured in this process."""
    library, network = name.split()
    model, size = _built(import_module(library), network)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model.{SUFFIX[library]}"
        model.save(path)
        try:
            return _row(name, size, _quantized(path, _images(model, size), Path(folder)), "")
        except QGraphError as error:
            return _row(name, size, None, error.message.splitlines()[0])


def _built(keras: Any, network: str) -> tuple[Any, int]:
    """The network for the smallest images that it takes, and their size.

    Batch norms look slightly trained.
    """
    keras.utils.set_random_seed(0)
    build = getattr(keras.applications, network)
    for size in SIZES:
        try:
            model = build(weights=None, input_shape=(size, size, 3), classes=CLASSES)
            break
        except ValueError as error:
            if size == SIZES[-1]:
                raise
            print(f"{network} {size}: {error}", file=sys.stderr)
    rng = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            shape = tuple(layer.moving_mean.shape)
            layer.moving_mean.assign(rng.normal(0, 0.1, shape))
            layer.moving_variance.assign(rng.uniform(0.5, 1.5, shape))
    return model, size


def _images(model: Any, size: int) -> Array:
    """Noise: bytes where the network scales them itself, else normally distributed numbers."""
    rng, shape = np.random.default_rng(0), (CALIBRATION, size, size, 3)
    scales = any(type(layer).__name__ in ("Rescaling", "Normalization") for layer in model.layers)
    made = rng.integers(0, 256, shape) if scales else rng.normal(size=shape)
    return made.astype(np.float32)


def _quantized(path: Path, images: Array, folder: Path) -> list[Any]:
    from qgraph import load, quantize, verify
    from qgraph.ir.ops.linear import COMPUTE
    from qgraph.stored.write import float_ops

    start = time.process_time()
    graph = load(path)
    made = quantize(graph, images, effort="plain")
    middle = time.process_time()
    layers = sum(node.op in COMPUTE for node in made.graph.nodes.values())
    kinds = Counter(entry.op for entry in float_ops(made.graph))
    left = ", ".join(kind if n == 1 else f"{n} {kind}" for kind, n in sorted(kinds.items()))
    found = verify(made.save(folder / "out"), images[:COMPARED], forms=FORMS).compared.tallies
    wrong, elements = (sum(getattr(t, k) for t in found.values()) for k in ("wrong", "elements"))
    faults = [tally.fault for tally in found.values() if tally.fault]
    differ = faults[0] if faults else f"{wrong:,} of {elements:,}"
    seconds = (middle - start, time.process_time() - middle)
    agreement = made.facts.agreement
    sqnr = agreement.sqnr if agreement else None
    return [layers, left or "none", sqnr, differ, *seconds]


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="Such as `keras VGG16`; may be repeated.")
    ] = None,
    row: Annotated[Path | None, typer.Option(help="Write the row of one network here.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Quantize and verify the networks, and print a table."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if unknown := set(only or ()) - set(NETWORKS):
        raise typer.BadParameter(f"unknown network {min(unknown)}; choose {', '.join(NETWORKS)}")
    if row is None:
        report("benchmarks.applications", [table(only or [])], json_file, packages=["tensorflow"])
    elif only:
        row.write_text(json.dumps(measured(only[0])), "utf-8")


if __name__ == "__main__":
    typer.run(main)
