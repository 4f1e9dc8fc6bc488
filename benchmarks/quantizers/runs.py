"""One training run of one network with one kind of quantizers, stored in a file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
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
LAST = 3  # validations whose mean is shown
# Samples from which quantizers start, and samples on which forms are compared.
STARTS, COMPARED = 128, 16
TESTED = 500
Facts = dict[str, Any]
Run = Callable[[int], Facts]  # by the order of the batches


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


def measured(
    case: Case, compared: Compared, profile: str, seeds: Iterable[int], folder: Path
) -> Iterator[tuple[int, Facts]]:
    """The facts of a run for each seed, from its file if it exists; else measured and written
    there.
    """
    run: Run | None = None
    for seed in seeds:
        asked = {
            "network": sha256_of(case.path),
            "training": len(case.data.training.labels),
            "options": {k: v for k, v in asdict(case.options).items() if v is not None},
            "seed": seed,
            "kind": compared.name,
            "plan": compared.plan.spec(),
        }
        file = file_of(case.name, compared, profile, seed, folder)
        known = read(file)
        if known is None or known["asked"] != asked:
            run = run or run_of(case, compared, profile)
            start = time.perf_counter()
            found = run(seed)
            known = {"asked": asked, **found, "seconds": round(time.perf_counter() - start, 1)}
            write_whole(file, (json.dumps(known, indent=1) + "\n").encode())
        yield seed, known


def file_of(network: str, compared: Compared, profile: str, seed: int, folder: Path) -> Path:
    """The file of a run. The float network is the same for all profiles."""
    target = f"{profile}-{compared.name}" if compared.quantized else compared.name
    return folder / f"{network}-{target}-seed{seed}.json"


def read(file: Path) -> Facts | None:
    """The facts of a run, or None if it was not made yet."""
    return json.loads(file.read_text("utf-8")) if file.exists() else None


def run_of(case: Case, compared: Compared, profile: str) -> Run:
    """A function that trains with a given order of the batches, always from the same start."""
    found, options = case.calibrated(profile, compared), options_of(case, compared)
    graph = found.graph if compared.quantized else found.floating

    def batches_of(part: Part, size: int, seed: int = 0) -> TrainingData:
        return training_data((part.images, part.labels), graph, size, seed)

    validation, tested = (batches_of(p, TESTED) for p in (case.data.validation, case.data.test))
    training = partial(batches_of, case.data.training, options.batch_size)
    if compared.by_tfmot:
        given = (case.name, case.path)
        return lambda seed: trained(*given, training(seed), validation, tested, options)
    sample = {graph.inputs[0]: case.data.calibration[:STARTS]}
    trainer = Trainer(
        graph, found.floating, norms_of(found.floating), training(0), validation, options,
        kind=compared.kind_for(sample),
    )  # fmt: skip
    start, untrained = trainer.state(), accuracy(trainer, tested)

    def run(seed: int) -> Facts:
        trainer.start_again(start, training(seed))
        trainer.run()
        assert trainer.best is not None and trainer.best_score is not None
        restore(trainer.model.named_variables(), trainer.best)
        facts: Facts = {
            "untrained": untrained,
            "test": accuracy(trainer, tested),
            "best": asdict(trainer.best_score),
            "history": [asdict(score) for score in trainer.history],
        }
        if compared.kind.integers:
            final = trainer.model.finalized()
            images = batches(graph.inputs[0], case.data.test.images[:COMPARED], COMPARED)
            facts["different"] = exactness(Checker(final), images).different
        return facts

    return run


def options_of(case: Case, compared: Compared) -> Options:
    """The options of the case for what the kind trains, with VALIDATIONS in a run."""
    steps = len(case.data.training.labels) // case.options.batch_size
    every = max(steps * case.options.epochs // VALIDATIONS, 1)
    return replace(case.options, learn=compared.learn, validate_every=every)


def accuracy(trainer: Trainer, data: TrainingData) -> float:
    """The share of right answers, with the arithmetic of inference."""
    _, right, count = trainer.evaluate(data)
    return right / count


def mean_of_last(facts: Facts) -> float:
    """The mean of the last validations of a run."""
    found = [score["accuracy"] for score in facts["history"][-LAST:]]
    return float(sum(found) / len(found))
