"""Build networks by many plans from the same samples, with shared work for common steps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.ir.types import Array
from qgraph.quant.correct_bias import correct_biases
from qgraph.quant.float_statistics import FloatStatistics
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import Profile
from qgraph.quant.samples.data import thinned
from qgraph.quant.shifts import check_shifts
from qgraph.rewrite.trace import Trace
from qgraph.static.build import calibrate_by, corrects, reconstruct, statistics_of
from qgraph.static.preparations import Preparations, Prepared

# Steps of a plan that change the float network only.
BY_PASSES = ("constant_channels", "equalize", "powers_of_two", "absorb", "scale_inputs")


class SharedStage(IntEnum):
    """The parts of a build that plans share."""

    PASSES = 1
    CALIBRATION = 2
    RECONSTRUCTION = 3


@dataclass(frozen=True)
class SharedPrefix:
    """A build up to the end of a stage: later steps of `plan` are off.

    `corrected`: whether corrections follow, which calibration depends on.
    """

    stage: SharedStage
    plan: Plan
    corrected: bool = False


@dataclass(frozen=True)
class PlannedNetwork:
    """The network of a plan: a hash of the float network after its passes, and the later steps."""

    floating: str
    later: Plan


class SharedBuild:
    """Builds the same networks as `build`; each stage runs once for all plans that have the same
    steps up to it.
    """

    def __init__(
        self,
        loaded: Graph,
        profile: Profile,
        data: Mapping[str, Array],
        memory: int | None = None,
        preparations: Preparations | None = None,
    ) -> None:
        self.profile, self.data, self.memory = profile, data, memory
        self.preparations = preparations or Preparations(loaded)
        self.learning_data = thinned(loaded, data)
        self._done: dict[SharedPrefix, Prepared] = {}
        self._float_statistics: dict[SharedPrefix, FloatStatistics] = {}
        self._hashes: dict[SharedPrefix, str] = {}

    def network_of(self, plan: Plan) -> PlannedNetwork:
        """Equal for plans that build the same network, as where passes of a plan change nothing."""
        prefix = _prefix(plan, SharedStage.PASSES)
        if prefix not in self._hashes:
            floating, _ = self._prepared(plan)
            self._hashes[prefix] = hashlib.sha256(print_graph(floating).encode()).hexdigest()
        later = replace(plan, **{step: getattr(PLAIN, step) for step in BY_PASSES})
        return PlannedNetwork(self._hashes[prefix], later)

    def build(self, plan: Plan) -> Graph:
        """The quantized graph of `plan`. Raises ExactnessError if it does not fit the target."""
        floating, graph = self._reconstructed(plan) if plan.reconstruct else self._calibrated(plan)
        graph = graph.copy()
        if plan.correct_bias:
            known = self._statistics(plan)
            if self.learning_data is not self.data:
                known = statistics_of(self._calibrated(plan)[1], self.learning_data)
            correct_biases(graph, floating, self.learning_data, statistics=known)
        return graph

    def forget_all_but(self, plan: Plan) -> None:
        """Free the graphs that no build of `plan` needs."""
        needed = {_prefix(plan, stage) for stage in SharedStage}
        self._done = {key: made for key, made in self._done.items() if key in needed}
        self._float_statistics = {
            key: made for key, made in self._float_statistics.items() if key in needed
        }

    def _prepared(self, plan: Plan) -> Prepared:
        def make() -> Prepared:
            return self.preparations.prepared(self.profile, plan, self.data, Trace())

        return self._once(_prefix(plan, SharedStage.PASSES), make)

    def _calibrated(self, plan: Plan) -> Prepared:
        def make() -> Prepared:
            floating, graph = self._prepared(plan)
            graph = graph.copy()
            statistics = self._statistics(plan) if corrects(plan) else None
            calibrate_by(
                graph, self.profile, plan, self.data, memory=self.memory, statistics=statistics
            )
            return floating, graph

        return self._once(_prefix(plan, SharedStage.CALIBRATION), make)

    def _statistics(self, plan: Plan) -> FloatStatistics:
        """Statistics of the float network after the passes of a plan."""
        key = _prefix(plan, SharedStage.PASSES)
        if key not in self._float_statistics:
            self._float_statistics[key] = statistics_of(self._prepared(plan)[1], self.data)
        return self._float_statistics[key]

    def _reconstructed(self, plan: Plan) -> Prepared:
        def make() -> Prepared:
            floating, graph = self._calibrated(plan)
            graph = graph.copy()
            reconstruct(graph, floating, self.learning_data)
            check_shifts(graph, self.profile.shift)
            return floating, graph

        return self._once(_prefix(plan, SharedStage.RECONSTRUCTION), make)

    def _once(self, key: SharedPrefix, make: Callable[[], Prepared]) -> Prepared:
        if key not in self._done:
            self._done[key] = make()
        return self._done[key]


def _prefix(plan: Plan, stage: SharedStage) -> SharedPrefix:
    early = replace(plan, correct_bias=False)
    if stage < SharedStage.RECONSTRUCTION:
        early = replace(early, reconstruct=False)
    if stage < SharedStage.CALIBRATION:
        return SharedPrefix(stage, replace(early, method=PLAIN.method, weights=PLAIN.weights))
    return SharedPrefix(stage, early, corrects(plan))
