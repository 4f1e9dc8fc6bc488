"""One training run of one network with one kind of quantizers, kept in a file."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.families.data import Part, Split
from benchmarks.quantizers.kinds import Compared
from benchmarks.quantizers.tfmot import trained
from benchmarks.real.measure import batches, exactness
from qgraph.backends.tf.agreement import Checker
from qgraph.compiler import quantize
from qgraph.files import sha256_of, write_whole
from qgraph.quant.plan import Plan
from qgraph.quant.profile import load_profile
from qgraph.quantized import Quantized
from qgraph.train.checkpoint import restore
from qgraph.train.data import TrainingData, training_data
from qgraph.train.folded import norms_of
from qgraph.train.loop import Trainer
from qgraph.train.options import Options

VALIDATIONS = 5  # in a run
LAST = 3  # of them, whose mean is shown
STARTS, COMPARED = 128, 16  # samples from which quantizers start, and on which forms are compared
TESTED = 500
Facts = dict[str, Any]


@dataclass
class Case:
    """A network, its images, and its calibrations, each made once."""

    name: str
    path: Path
    data: Split
    options: Options
    made: dict[tuple[str, Plan, bool], Quantized] = field(default_factory=dict)

    def calibrated(self, profile: str, compared: Compared) -> Quantized:
        """The network in fixed point, to be trained."""
        key = (profile, compared.plan, compared.per_channel)
        if key not in self.made:
            target = replace(load_profile(profile), per_channel=compared.per_channel)
            self.made[key] = quantize(
                self.path, self.data.calibration, profile=target, mode="retrain", plan=key[1]
            )
        return self.made[key]

    def batches(self, part: Part, size: int, seed: int, quantized: Quantized) -> TrainingData:
        """Labelled batches of images."""
        return training_data((part.images, part.labels), quantized.graph, size, seed)


def measured(case: Case, compared: Compared, profile: str, seed: int, folder: Path) -> Facts:
    """The facts of a run: from its file, or made now and written there."""
    steps = len(case.data.training.labels) // case.options.batch_size
    every = max(steps * case.options.epochs // VALIDATIONS, 1)
    options = replace(case.options, learn=compared.learn, seed=seed, validate_every=every)
    asked = {
        "network": sha256_of(case.path),
        "training": len(case.data.training.labels),
        "options": {k: v for k, v in asdict(options).items() if v is not None},
        "kind": compared.name,
        "plan": compared.plan.spec(),
    }
    file = file_of(case.name, compared, profile, seed, folder)
    known = read(file)
    if known is not None and known["asked"] == asked:
        return known
    made = {"asked": asked, **_made(case, compared, profile, options)}
    write_whole(file, (json.dumps(made, indent=1) + "\n").encode())
    return made


def file_of(network: str, compared: Compared, profile: str, seed: int, folder: Path) -> Path:
    """The file of a run. The float network is the same for all profiles."""
    target = f"{profile}-{compared.name}" if compared.quantized else compared.name
    return folder / f"{network}-{target}-seed{seed}.json"


def read(file: Path) -> Facts | None:
    """The facts of a run; None before it."""
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def _made(case: Case, compared: Compared, profile: str, options: Options) -> Facts:
    start = time.perf_counter()
    found = case.calibrated(profile, compared)
    graph = found.graph if compared.quantized else found.floating
    size, seed = options.batch_size, options.seed
    training = case.batches(case.data.training, size, seed, found)
    validation, tested = (
        case.batches(part, TESTED, seed, found) for part in (case.data.validation, case.data.test)
    )
    if compared.by_tfmot:
        given = (case.name, case.path, training, validation, tested)
        return {**trained(*given, options), "seconds": round(time.perf_counter() - start, 1)}
    sample = {graph.inputs[0]: case.data.calibration[:STARTS]}
    trainer = Trainer(
        graph, found.floating, norms_of(found.floating), training, validation, options,
        kind=compared.kind_for(sample),
    )  # fmt: skip
    test = partial(accuracy, trainer, tested)
    untrained = test()
    trainer.run()
    assert trainer.best is not None and trainer.best_score is not None
    restore(trainer.model.named_variables(), trainer.best)
    facts: Facts = {
        "untrained": untrained,
        "test": test(),
        "best": asdict(trainer.best_score),
        "history": [asdict(score) for score in trainer.history],
    }
    if compared.kind.integers:
        final = trainer.model.finalized()
        images = batches(graph.inputs[0], case.data.test.images[:COMPARED], COMPARED)
        facts["different"] = exactness(Checker(final), images).different
    facts["seconds"] = round(time.perf_counter() - start, 1)
    return facts


def accuracy(trainer: Trainer, data: TrainingData) -> float:
    """The share of right answers, with the arithmetic of inference."""
    _, right, count = trainer.evaluate(data)
    return right / count


def mean_of_last(facts: Facts) -> float:
    """The mean of the last validations of a run."""
    found = [score["accuracy"] for score in facts["history"][-LAST:]]
    return float(sum(found) / len(found))
