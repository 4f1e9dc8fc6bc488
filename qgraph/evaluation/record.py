"""The last evaluation of a network as a file in its directory, which the report shows."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qgraph.errors import OutputError
from qgraph.evaluation.labelled import Source
from qgraph.evaluation.result import Accuracy, Error, OutputScore
from qgraph.files import sha256_of, write_whole
from qgraph.records import to_json
from qgraph.stored.manifest import Manifest, record_in
from qgraph.stored.write import EVALUATION
from qgraph.words import counted, percent

GRAPH = "graph.txt"  # its hash identifies the network


@dataclass(frozen=True)
class EvaluationRecord:
    """Scores on labelled samples.

    Attributes:
        graph: SHA-256 of the graph's text: the network that was evaluated.
        data: Name of the data.
        samples: Number of samples.
        outputs: Scores of each output.
    """

    graph: str
    data: str
    samples: int
    outputs: tuple[OutputScore, ...]

    def __str__(self) -> str:
        """One sentence without a full stop: the scores of both networks."""
        several = len(self.outputs) > 1
        scores = [_score(score, several) for score in self.outputs]
        return f"on {counted(self.samples, 'sample')} of {self.data}, {'; '.join(scores)}"


def _score(score: OutputScore, several: bool) -> str:
    of = f" of {score.output}" if several else ""
    quantized, floating = score.quantized, score.floating
    if isinstance(quantized, Accuracy) and isinstance(floating, Accuracy):
        top1, before = percent(quantized.top1), percent(floating.top1)
        return f"top-1 accuracy{of} is {top1} ({before} in float)"
    errors = [x.root_mean_square for x in (quantized, floating) if isinstance(x, Error)]
    return f"the RMS error{of} is {errors[0]:.6g} ({errors[1]:.6g} in float)"


def store(folder: Path, data: Source, samples: int, outputs: tuple[OutputScore, ...]) -> None:
    """Write the record into the directory, unless the directory is not writable."""
    name = Path(data).name if isinstance(data, str | Path) else "arrays"
    record = EvaluationRecord(sha256_of(folder / GRAPH), name, samples, outputs)
    with suppress(OutputError):
        write_whole(folder / EVALUATION, (json.dumps(to_json(record), indent=1) + "\n").encode())


def stored(folder: Path, manifest: Manifest) -> EvaluationRecord | None:
    """The record of this network; None if it was not evaluated."""
    record = record_in(EvaluationRecord, folder / EVALUATION)
    return record if record and record.graph == manifest.files.get(GRAPH) else None
