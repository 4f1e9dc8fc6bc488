"""Float and quantized network on labelled samples, block by block."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qgraph.errors import UnsupportedError
from qgraph.evaluation.input_ranges import other_scale
from qgraph.evaluation.labelled import Labelled, Source, labelled
from qgraph.evaluation.record import store
from qgraph.evaluation.result import Evaluation, OutputScore, Speed
from qgraph.evaluation.scoring import Scoring, Tally, scoring
from qgraph.evaluation.sizes import sizes_of
from qgraph.exact.reference import Reference
from qgraph.interpret import evaluate as run_float
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.parallel import over_chunks
from qgraph.progress import Progress, silent
from qgraph.quant.samples.data import chunk_at, chunk_count, chunk_inputs
from qgraph.runtime import Session
from qgraph.stored import inference_folder, load_float, load_graph, load_samples

BATCH = 32  # samples per run, if the network's batch size is open
BLOCK = 16  # batches whose outputs are kept in memory together

Arrays = Mapping[str, Array]


def evaluate(
    folder: str | Path,
    data: Source,
    *,
    output: str | None = None,
    limit: int | None = None,
    threads: int = 1,
    level: str = "auto",
    held_out: int | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Measure the accuracy or error of the float and the quantized network on labelled samples.

    The integer engine runs the quantized network; TensorFlow is not needed. The scores are also
    written to evaluation.json in the directory, where the report reads them.

    Args:
        folder: Directory that `qgraph quantize` or `finalize` wrote. For a training directory, its
            `inference/` is used.
        data: A `.npz` with an array for each input and labels under `labels`, `label` or `y`, a
            directory of such files, `module:function` (the labels of a dataset of pairs are
            `labels`), or arrays by name. Labels are classes, or values of the shape of the output.
            With several outputs, arrays named like these or `labels/NAME`.
        output: The only output to evaluate.
        limit: Use only the first samples.
        threads: Threads of the engine.
        level: Instructions of the engine, as in `qgraph.runtime.Engine.open`.
        held_out: Number of samples to use, from the end.
        progress: Called with the stage, how much is done, and how much there is.

    Returns:
        Scores by output, sizes, and the time for a sample.

    Raises:
        LoadError: The folder is not an output directory of qgraph.
        CalibrationError: The data does not fit the network, or has no labels.
        UsageError: The output does not exist, or a number is out of range.

    Examples:
        >>> found = qgraph.evaluate("out", "test.npz")
        >>> print(f"{found.outputs[0].quantized.top1:.2%}")
        99.11%
    """
    folder = inference_folder(folder)
    graph = load_graph(folder)
    samples = labelled(data, graph, output, limit)
    if held_out is not None:
        samples = samples.last(held_out)
    floating = load_float(folder)
    quantized = _Quantized(folder, graph, threads, level)
    scores = _Comparison(floating, quantized, samples).run(progress)
    store(folder, data, samples.samples, scores)
    speed = quantized.speed(samples.samples)
    warnings = tuple(other_scale(samples.inputs, load_samples(folder)))
    return Evaluation(samples.samples, scores, sizes_of(floating, graph), speed, warnings)


class _Quantized:
    """The quantized network, run and timed on the engine; without an engine, on the reference."""

    def __init__(self, folder: Path, graph: Graph, threads: int, level: str) -> None:
        self.threads, self.seconds = threads, 0.0
        self.session: Session | None = None
        try:
            self.session = Session.open(folder, threads, level)
        except UnsupportedError:
            self.reference = Reference(graph)

    def run(self, feeds: Arrays) -> Arrays:
        if self.session is None:
            return self.reference.outputs(feeds)
        begin = time.perf_counter()
        found = self.session.run(feeds)
        self.seconds += time.perf_counter() - begin
        return found

    def speed(self, samples: int) -> Speed | None:
        if self.session is None:
            return None
        milliseconds = round(self.seconds / samples * 1e3, 4)
        return Speed(milliseconds, self.session.level, self.threads)


class _Comparison:
    """Both networks over all samples."""

    def __init__(self, floating: Graph, quantized: _Quantized, samples: Labelled) -> None:
        self.floating, self.quantized, self.samples = floating, quantized, samples
        self.chunks = chunk_inputs(floating, samples.inputs, BATCH)
        self.scorings: dict[str, tuple[Scoring, Array]] = {}
        self.tallies: dict[str, tuple[Tally, Tally, Tally]] = {}

    def run(self, progress: Progress) -> tuple[OutputScore, ...]:
        count, done = chunk_count(self.chunks), 0
        with over_chunks(min(count, BLOCK)) as each:
            for start in range(0, count, BLOCK):
                block = range(start, min(start + BLOCK, count))
                for i, before in zip(block, each(self._run_float, block), strict=True):
                    progress("evaluating", i, count)
                    feeds = chunk_at(self.chunks, i)
                    after, size = self.quantized.run(feeds), len(next(iter(feeds.values())))
                    self._add(before, after, done, size)
                    done += size
        return tuple(self._score(name) for name in self.samples.labels)

    def _run_float(self, i: int) -> Arrays:
        return run_float(self.floating, chunk_at(self.chunks, i), [*self.samples.labels])

    def _add(self, before: Arrays, after: Arrays, start: int, size: int) -> None:
        for name, labels in self.samples.labels.items():
            if name not in self.scorings:
                self.scorings[name] = scoring(
                    self.floating, name, before[name], size, np.asarray(labels)
                )
            how, wanted = self.scorings[name]
            part = wanted[start : start + size]
            old = self.tallies.get(name, (Tally(), Tally(), Tally()))
            new = (
                how.tally(before[name], part),
                how.tally(after[name], part),
                how.same(before[name], after[name]),
            )
            self.tallies[name] = (old[0] + new[0], old[1] + new[1], old[2] + new[2])

    def _score(self, name: str) -> OutputScore:
        how, _ = self.scorings[name]
        floating, quantized, same = self.tallies[name]
        alike = same.first / same.count if same.count else None
        return OutputScore(name, how.score(floating), how.score(quantized), alike)
