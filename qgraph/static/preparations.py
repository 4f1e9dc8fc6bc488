"""Graphs that passes make of one network for many plans; what plans begin with alike runs once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.passes import Pass, PassManager, PassResult
from qgraph.pipelines import USUAL, Pipeline
from qgraph.quant.exponents import Exponents
from qgraph.quant.plan import Plan
from qgraph.quant.profile import Profile
from qgraph.recipes import FLOAT
from qgraph.rewrite.trace import Trace
from qgraph.static.feature_exponents import feature_exponents
from qgraph.transforms.scale_inputs import ScaleInputs

Prepared = tuple[Graph, Graph]  # a float graph, and its twin with quantizers


@dataclass(frozen=True)
class PassesDone:
    """A graph after some passes, with what they logged. It is copied before it is changed."""

    steps: tuple[Pass, ...]
    graph: Graph
    trace: Trace
    results: tuple[PassResult, ...] = ()

    def then(self, steps: Sequence[Pass]) -> PassesDone:
        """The same after more passes."""
        graph, trace = self.graph.copy(), self.trace.copy()
        results = PassManager(steps).run(graph, trace)
        return PassesDone((*self.steps, *steps), graph, trace, (*self.results, *results))


class Preparations:
    """Prepares one network for plans; keeps what it did."""

    def __init__(self, loaded: Graph, pipeline: Pipeline = USUAL) -> None:
        self.pipeline = pipeline
        self._done = [PassesDone((), loaded.copy(), Trace())]

    def prepared(
        self,
        profile: Profile,
        plan: Plan,
        data: Mapping[str, Array],
        trace: Trace,
        on_pass: Callable[[PassResult], None] = lambda result: None,
        exponents: Exponents | None = None,
    ) -> Prepared:
        """The float graph that the passes of `plan` make, and its twin with quantizers.

        data: scales of input features come from it, unless `exponents` has them. `trace` and
        `on_pass` learn of all passes, whenever they ran.
        """
        done = self._after(self.pipeline.prepare(plan))
        if plan.scale_inputs:
            found = feature_exponents(done.graph, data) if exponents is None else exponents.features
            done = done.then([ScaleInputs(found)])
        floating = done.graph.copy()
        done = done.then(self.pipeline.insert(profile))
        trace.extend(done.trace)
        for result in done.results:
            on_pass(result)
        return floating, done.graph

    def forget_all_but(self, plans: Sequence[Plan]) -> None:
        """Free the graphs that none of `plans` begins with."""
        needed = [self.pipeline.prepare(plan) for plan in plans]
        self._done = [
            done for done in self._done if any(s[: len(done.steps)] == done.steps for s in needed)
        ]

    def _after(self, steps: tuple[Pass, ...]) -> PassesDone:
        """The graph after `steps`; it is kept also in front of passes that only some plans have."""
        fitting = (done for done in self._done if done.steps == steps[: len(done.steps)])
        done = max(fitting, key=lambda done: len(done.steps))
        while len(done.steps) < len(steps):
            rest = steps[len(done.steps) :]
            own = (i for i, step in enumerate(rest) if i and step not in FLOAT)
            done = done.then(rest[: next(own, len(rest))])
            self._done.append(done)
        return done
