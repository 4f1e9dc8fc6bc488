"""Samples that a network is quantized on: read and checked, or generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qgraph.errors import UsageError
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.passes import PassManager
from qgraph.pipelines import USUAL, Pipeline
from qgraph.progress import Progress
from qgraph.quant.domain import SAMPLES, domain_of
from qgraph.quant.input_range import doubts, ranges_seen
from qgraph.quant.samples.data import Data, load_data
from qgraph.quant.thresholds import Range
from qgraph.quant.without_data.generated import NO_DATA, generate_samples
from qgraph.recipes import CLEAN, FLOAT, FOLD
from qgraph.static.cautions import of_evidence
from qgraph.static.facts import DomainFacts, SampleFacts
from qgraph.static.sample_parts import first_samples, samples_of


@dataclass(frozen=True)
class Samples:
    """Samples by input name, the folded float graph that they are for, and facts about both."""

    data: Mapping[str, Array]
    original: Graph
    warnings: Sequence[str]
    facts: SampleFacts
    generated: bool


def samples_for(
    graph: Graph,
    calibration: Data | None,
    input_ranges: Mapping[str, Range],
    limit: int | None,
    measures: Mapping[str, bool],
    progress: Progress,
    pipeline: Pipeline = USUAL,
) -> Samples:
    """Read `calibration`, or generate samples if there is none.

    measures: names of results that need real samples. Raises CalibrationError, and UsageError if
    options do not fit together.
    """
    original = graph.copy()
    if calibration is None:
        for what in (name for name, asked in measures.items() if asked):
            raise UsageError(
                f"{what} needs samples to measure on", hint="give some: --calibration FILE.npz"
            )
        PassManager(pipeline.kept(FLOAT)).run(original)
        made = generate_samples(original, input_ranges)
        warnings = [NO_DATA, *made.notes]
        facts = SampleFacts(dict(made.inputs), None, {}, ())
        return Samples(made.data, original, warnings, facts, True)
    if input_ranges:
        raise UsageError("input ranges are for runs without data", hint="leave one of them out")
    data = load_data(calibration, graph, limit, lambda n: progress("reading", n, limit or n))
    PassManager(pipeline.kept(CLEAN)).run(original)
    compared = domain_of(original, first_samples(original, data, SAMPLES))
    seen = ranges_seen(original, data)
    odd = doubts(original, seen, with_norms=compared is not None)
    PassManager(pipeline.kept(FOLD)).run(original)
    domain = DomainFacts(compared, compared.warning) if compared else None
    facts = SampleFacts(None, domain, seen, odd)
    unlike = [compared.warning] if compared and compared.warning else []
    return Samples(data, original, [*unlike, *odd, *of_evidence(samples_of(data))], facts, False)
