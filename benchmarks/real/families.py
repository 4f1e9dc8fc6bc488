"""Six small networks of as many families (`benchmarks/families`), static, on Fashion-MNIST."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.families.data import CALIBRATION, fashion_mnist
from benchmarks.families.networks import FAMILIES
from benchmarks.families.train import INPUT, OUTPUT, facts_of, path_of
from benchmarks.real.measure import batches, exactness, same_class
from benchmarks.real.tables import Table
from qgraph.backends.tf.agreement import Checker
from qgraph.backends.tf.emit import emit_graph_def
from qgraph.backends.tf.program import TFProgram
from qgraph.compiler import quantize
from qgraph.frontends import load
from qgraph.quant.plan import parse_plan

WAYS = (
    ("graffitist-int8", "plain"),
    ("graffitist-int8", "default"),
    ("graffitist-int4", "plain"),
    ("graffitist-int4", "default"),
)
COMPARED = 16


def tables() -> Iterator[Table]:
    data = fashion_mnist()
    test = data.test
    table = Table(
        f"Six families, static, {len(test.labels):,} Fashion-MNIST test images",
        {"network": "", "parameters": ",", "profile": "", "effort": "", "accuracy": ".2%",
         "as float": ".2%", "differ from reference": "", "quantize s": ".1f"},
        notes=[f"calibrated on {CALIBRATION} training images",
               f"compared with the integer reference on {COMPARED} test images",
               "graffitist-int4: weights of 4 bits, those of the first and the last layer of 8"],
    )  # fmt: skip
    for name in FAMILIES:
        model = load(path_of(name))
        wanted = TFProgram(emit_graph_def(model)).predict(INPUT, test.images, OUTPUT, 500)
        right = float((wanted.argmax(1) == test.labels).mean())
        size = int(facts_of(name)["parameters"])
        table.add(name, size, "float32", None, right, 1.0, None, None)
        for profile, effort in WAYS:
            start = time.perf_counter()
            result = quantize(model, data.calibration, profile=profile, effort=effort)
            seconds = time.perf_counter() - start
            checker = Checker(result.graph)
            found = checker.program.predict(INPUT, test.images, OUTPUT, 500)
            same = exactness(checker, batches(INPUT, test.images[:COMPARED], COMPARED))
            right = float((found.argmax(1) == test.labels).mean())
            agreement = same_class(found, wanted)
            table.add(name, size, profile, effort, right, agreement, str(same), seconds)
            if effort != "plain":
                plan = parse_plan(str(result.facts["plan_spec"])).spec()
                table.notes.append(f"{name}, {profile}: {plan}")
    yield table
