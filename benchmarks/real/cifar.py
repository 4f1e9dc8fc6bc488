"""`cifar_10_model`: accuracy on all of CIFAR-10's test images, by profile and method."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks import assets
from benchmarks.real.measure import METHODS, batches, exactness, profiles, same_class, timed
from benchmarks.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array

CALIBRATION, COMPARED = 512, 16


def network_and_images() -> tuple[Graph, Array, Array, Array]:
    """The network, training images to calibrate on, all test images, and their labels."""
    images, labels = assets.cifar10_test()
    calibration = assets.cifar10_train()[0][:CALIBRATION].astype(np.float32)
    network = load(assets.cifar10_network())
    return network, calibration, images.astype(np.float32), labels


def tables() -> Iterator[Table]:
    model, calibration, test, labels = network_and_images()
    (name,), (output,) = model.inputs, list(model.outputs)
    wanted = TFProgram(emit_graph_def(model)).predict(name, test, output, 256)
    table = Table(
        f"cifar_10_model, static, {len(test):,} CIFAR-10 test images",
        {"profile": "", "method": "", "accuracy": ".2%", "as float": ".2%",
         "differ from reference": "", "quantize s": ".1f"},
        notes=[f"calibrated on {CALIBRATION} training images",
               f"compared with the integer reference on {COMPARED} test images"],
    )  # fmt: skip
    table.add("float32", None, float((wanted.argmax(1) == labels).mean()), 1.0, None, None)
    for profile in profiles():
        for method in METHODS:
            result, seconds = timed(model, calibration, profile, method)
            checker = Checker(result.graph)
            found = checker.program.predict(name, test, output, 256)
            same = exactness(checker, batches(name, test[:COMPARED], COMPARED))
            accuracy = float((found.argmax(1) == labels).mean())
            agreement = same_class(found, wanted)
            table.add(profile.name, method, accuracy, agreement, str(same), seconds)
    yield table
