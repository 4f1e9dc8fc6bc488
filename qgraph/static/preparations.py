"""Prepare one network for many plans; passes that several plans share run once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.passes import Pass, PassManager, PassResult
from qgraph.pipelines import USUAL, Pipeline
from qgraph.quant.exponents import Exponents, Factors
from qgraph.quant.plan import Plan
from qgraph.quant.profile import Profile
from qgraph.recipes import FLOAT
from qgraph.rewrite.trace import Trace
from qgraph.static.channel_factors import (
    channel_factors,
    is_measured,
    layer_steps,
    pass_without_factors,
    with_factors,
    without_factors,
)
from qgraph.static.feature_exponents import feature_exponents
from qgraph.transforms.scale_inputs import ScaleInputs

Prepared = tuple[Graph, Graph]  # a float graph, and its form with quantizers


@dataclass(frozen=True)
class PassesDone:
    """A graph after some passes, with their log. It is copied before it is changed."""

    steps: tuple[Pass, ...]
    graph: Graph
    trace: Trace
    results: tuple[PassResult, ...] = ()

    def then(self, steps: Sequence[Pass]) -> PassesDone:
        """The graph after further passes."""
        graph, trace = self.graph.copy(), self.trace.copy()
        results = PassManager(steps).run(graph, trace)
        return PassesDone((*self.steps, *steps), graph, trace, (*self.results, *results))


@dataclass(frozen=True)
class FactorsFound:
    """Factors of channels for a target, in the graph after the passes `before`.

    measured: whether ranges are those of samples. data: samples that they are computed from; None
    for batch norms alone.
    """

    before: tuple[Pass, ...]
    measured: bool
    data: Mapping[str, Array] | None
    target: tuple[Pass, ...]
    factors: Factors


class Preparations:
    """Prepares one network for plans, and reuses earlier results."""

    def __init__(self, loaded: Graph, pipeline: Pipeline = USUAL) -> None:
        self.pipeline = pipeline
        self._done = [PassesDone((), loaded.copy(), Trace())]
        self._factors: list[FactorsFound] = []

    def prepared(
        self,
        profile: Profile,
        plan: Plan,
        data: Mapping[str, Array],
        trace: Trace,
        on_pass: Callable[[PassResult], None] = lambda result: None,
        exponents: Exponents | None = None,
        generated: bool = False,
    ) -> Prepared:
        """The float graph after the passes of `plan`, and its form with quantizers.

        data: for scales of input features and factors of channels, unless `exponents` has them; if
        it is `generated`, factors come from batch norms alone. `trace` and `on_pass` get all
        passes, also those that ran before.
        """
        steps = self.pipeline.prepare(plan)
        if exponents is not None:
            steps = with_factors(steps, exponents.factors)
        else:
            seen = None if generated else data
            steps = self._with_factors(steps, seen, self.pipeline.insert(profile))
        done = self._after(steps)
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
        """Free the graphs that none of `plans` starts with."""
        needed = [without_factors(self.pipeline.prepare(plan)) for plan in plans]

        def is_needed(steps: tuple[Pass, ...]) -> bool:
            return any(planned[: len(steps)] == steps for planned in needed)

        self._done = [done for done in self._done if is_needed(without_factors(done.steps))]
        self._factors = [known for known in self._factors if is_needed(known.before)]

    def _with_factors(
        self, steps: tuple[Pass, ...], data: Mapping[str, Array] | None, target: tuple[Pass, ...]
    ) -> tuple[Pass, ...]:
        """The passes of a plan, with factors of channels.

        data: samples; None uses batch norms alone. target: the passes that insert quantizers, whose
        bits the factors depend on.
        """
        place = pass_without_factors(steps)
        if place is None:
            return steps
        before, measured = steps[:place], is_measured(steps[place])
        wanted = before, measured, target
        for known in self._factors:
            if (known.before, known.measured, known.target) == wanted and known.data is data:
                return with_factors(steps, known.factors)
        unscaled = self._after(before)
        quantized = unscaled.then([*steps[place + 1 :], *target]).graph

        def scaled(found: Factors) -> Graph:
            return unscaled.then([*with_factors(steps, found)[place:], *target]).graph

        factors = channel_factors(unscaled.graph, data, layer_steps(quantized), scaled, measured)
        self._factors.append(FactorsFound(before, measured, data, target, factors))
        return with_factors(steps, factors)

    def _after(self, steps: tuple[Pass, ...]) -> PassesDone:
        """The graph after `steps`. It is also stored before passes that only some plans have."""
        fitting = (done for done in self._done if done.steps == steps[: len(done.steps)])
        done = max(fitting, key=lambda done: len(done.steps))
        while len(done.steps) < len(steps):
            rest = steps[len(done.steps) :]
            own = (i for i, step in enumerate(rest) if i and step not in FLOAT)
            done = done.then(rest[: next(own, len(rest))])
            self._done.append(done)
        return done
