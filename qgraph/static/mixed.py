"""Mixed precision: bits for the weights of each layer, under a budget, found by measurement.

Each width is first tried everywhere, which shows the cost of each layer at this width alone. From
these costs follow the bits with the least noise. The network is built with them, the cost of each
layer in this network is measured, and the estimate is corrected. The samples for the report are
never used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qgraph.errors import ExactnessError
from qgraph.exact.bounds import accumulator_bits, bounds, check_accumulators
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.progress import Progress, silent
from qgraph.quant.bits import Bits, Budget, assign, check_budgets, cost
from qgraph.quant.plan import Plan
from qgraph.quant.profile import Profile
from qgraph.quant.samples.data import thinned
from qgraph.recipes import FLOAT
from qgraph.rewrite.trace import Trace
from qgraph.static.agreement import Agreement, agreement
from qgraph.static.build import build
from qgraph.static.facts import MixedFacts, PointFacts, decibels
from qgraph.static.preparations import Preparations
from qgraph.static.sample_parts import Split
from qgraph.static.switched import Variant, agreements
from qgraph.static.units import (
    WIDTHS,
    Unit,
    bits_of,
    fewest,
    overridden,
    quantizers_of,
    uniform,
    units_by,
)
from qgraph.stopping import accept_interrupt

ROUNDS = 4
# Largest correction in a round, because the noise of one layer can hide that of another.
MAX_CORRECTION = 8.0


@dataclass(frozen=True)
class Point:
    """Bits for each unit, and the result of the network with these bits on the comparison part."""

    bits: Bits
    weight_bytes: int
    mean_bits: float
    agreement: Agreement
    uniform: bool = False


@dataclass(frozen=True)
class Mixed:
    """Result of a search: the points measured, and the best for each budget."""

    units: tuple[Unit, ...]
    points: tuple[Point, ...]
    chosen: Mapping[Budget, Point]

    def front(self) -> set[Point]:
        """The points that no other point exceeds in both size and SQNR."""
        return {p for p in self.points if not any(_beats(other, p) for other in self.points)}

    def facts(self, *budgets: Budget) -> MixedFacts:
        """All points with their bits; those chosen for `budgets` are marked as kept."""
        kept, front = [self.chosen[budget] for budget in budgets], self.front()
        return MixedFacts(
            self.points[0].agreement.samples,
            {name: unit.size for unit in self.units for name in unit.layers},
            [self._point(point, point in front, point in kept) for point in self.points],
        )

    def _point(self, point: Point, front: bool, kept: bool) -> PointFacts:
        units = zip(self.units, point.bits, strict=True)
        return PointFacts(
            point.weight_bytes,
            point.mean_bits,
            decibels(point.agreement.sqnr),
            point.agreement.top1,
            point.uniform,
            front,
            kept,
            {name: bits for unit, bits in units for name in unit.layers},
        )


def _beats(a: Point, b: Point) -> bool:
    """Whether `a` is not worse in either and better in one."""
    one, two = (a.weight_bytes, -a.agreement.sqnr), (b.weight_bytes, -b.agreement.sqnr)
    return one != two and all(x <= y for x, y in zip(one, two, strict=True))


def search_bits(
    loaded: Graph,
    profile: Profile,
    plan: Plan,
    parts: Split,
    budgets: Iterable[Budget],
    progress: Progress = silent,
    preparations: Preparations | None = None,
) -> Mixed:
    """Choose bits for each layer under each budget, with networks built by `plan`.

    Layers whose weight bits the profile sets keep them. Ctrl-C ends the search, and the best result
    so far is kept. preparations: of `loaded`, by the pipeline to use. Raises UsageError for a
    budget that cannot be met.
    """
    budgets = list(budgets)
    known = preparations or Preparations(loaded)
    search = _MixedSearch(loaded, profile, plan, parts, known)
    check_budgets(budgets, search.sizes, fewest(profile, search.units))
    for done, width in enumerate(WIDTHS):
        progress("widths", done, len(WIDTHS))
        search.try_everywhere(width)
    search.check(budgets)
    chosen = {}
    for done, budget in enumerate(budgets):
        progress("bits", done, len(budgets))
        chosen[budget] = search.best(budget)
    points = sorted(search.points, key=lambda p: (p.weight_bytes, -p.agreement.sqnr))
    return Mixed(search.units, tuple(points), chosen)


class _MixedSearch:
    def __init__(
        self,
        loaded: Graph,
        profile: Profile,
        plan: Plan,
        parts: Split,
        preparations: Preparations,
    ) -> None:
        self.loaded, self.profile, self.plan, self.parts = loaded, profile, plan, parts
        self.preparations, pipeline = preparations, preparations.pipeline
        self.calibration = thinned(loaded, parts.calibration)
        self.original = loaded.copy()
        PassManager(pipeline.kept(FLOAT)).run(self.original)
        self.units = units_by(loaded, profile, plan, pipeline)
        self.sizes = [unit.size for unit in self.units]
        self.noise: list[dict[int, float]] = [{} for _ in self.units]
        self.points: list[Point] = []
        self.failure: ExactnessError | None = None
        self.interrupted = False

    def try_everywhere(self, width: int) -> None:
        """Record the cost of each layer alone at `width`; unsupported widths are left out."""
        try:
            floating, graph = self._build(uniform(self.profile, width))
        except ExactnessError as error:
            self.failure = error
            return
        variants = [Variant(False, quantizers_of(graph, unit)) for unit in self.units]
        alone = agreements(graph, floating, self.parts.comparison, variants)
        reached, built = bounds(graph), bits_of(graph, self.units)
        for unit, bits, noise, found in zip(self.units, built, self.noise, alone, strict=True):
            widest = max(accumulator_bits(graph, reached, name) for name in unit.layers)
            if self.profile.accumulator_wraps or widest <= self.profile.accumulator_bits:
                noise[bits] = noise_of(found)
        try:
            self._measure(graph, built, True)
        except ExactnessError as error:
            self.failure = error

    def check(self, budgets: Sequence[Budget]) -> None:
        """Raise unless every layer has a supported width, and all fit each budget."""
        if self.failure is not None and not all(self.noise):
            raise self.failure
        check_budgets(budgets, self.sizes, [min(noise) for noise in self.noise])

    def best(self, budget: Budget) -> Point:
        """The best point within `budget`: each round builds a point and corrects the estimates."""
        limit: float = budget.limit(self.sizes)
        noise: Sequence[Mapping[int, float]] = self.noise
        try:
            for _ in range(0 if self.interrupted and self._within(limit) else ROUNDS):
                bits = assign(noise, self.sizes, limit)
                if any(point.bits == bits for point in self.points):
                    break
                floating, graph = self._build(overridden(self.profile, self.units, bits))
                point = self._measure(graph, bits)
                noise = self._corrected(noise, graph, floating, point)
        except ExactnessError as error:  # the target does not support these bits together
            self.failure = error
        except KeyboardInterrupt:
            self.interrupted = True
            if not self._within(limit):
                raise
            accept_interrupt()
        if self.failure is not None and not self._within(limit):
            raise self.failure
        return max(self._within(limit), key=lambda p: p.agreement.sqnr)

    def _within(self, limit: float) -> list[Point]:
        return [p for p in self.points if cost(p.bits, self.sizes) <= limit]

    def _build(self, profile: Profile) -> tuple[Graph, Graph]:
        return build(
            self.loaded,
            profile,
            self.plan,
            self.calibration,
            Trace(),
            preparations=self.preparations,
        )

    def _measure(self, graph: Graph, bits: Bits, uniform: bool = False) -> Point:
        if not self.profile.accumulator_wraps:
            check_accumulators(graph, bounds(graph), self.profile.accumulator_bits)
        total = cost(bits, self.sizes)
        found = agreement(self.original, graph, self.parts.comparison)
        point = Point(bits, -(-total // 8), total / sum(self.sizes), found, uniform)
        self.points.append(point)
        return point

    def _corrected(
        self, noise: Sequence[Mapping[int, float]], graph: Graph, floating: Graph, point: Point
    ) -> list[dict[int, float]]:
        """The noise of each unit, scaled by its measured cost relative to the estimate."""
        variants = [Variant(True, quantizers_of(graph, unit)) for unit in self.units]
        whole, *without = agreements(
            graph, floating, self.parts.comparison, [Variant(True), *variants]
        )
        corrected = []
        for known, width, found in zip(noise, point.bits, without, strict=True):
            thought, seen = known[width], noise_of(whole) - noise_of(found)
            factor = seen / thought if thought > 0 else 1.0
            factor = min(max(factor, 1 / MAX_CORRECTION), MAX_CORRECTION)
            corrected.append({bits: value * factor for bits, value in known.items()})
        return corrected


def noise_of(found: Agreement) -> float:
    """The ratio of noise to signal at the outputs, as power; finite without a signal."""
    return float(10 ** min(-found.sqnr / 10, 30.0))
