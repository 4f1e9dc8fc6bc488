"""Mixed precision: bits for the weights of each layer, under a budget, found by measurement.

Each width is first tried everywhere, which shows what each layer costs at it on its own. That
gives an order in which bits are worth their bytes. The network is then built as that order says,
what each layer costs in its place is measured, and the order is corrected. Samples that a report
is made on are never seen.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from qgraph.errors import ExactnessError, UsageError
from qgraph.exact.bounds import bounds, check_accumulators
from qgraph.ir.graph import Graph
from qgraph.passes import PassManager
from qgraph.quant.plan import Plan
from qgraph.quant.profile import Override, Profile
from qgraph.quant.topology import COMPUTE
from qgraph.recipes import FLOAT
from qgraph.rewrite.trace import Trace
from qgraph.static import Agreement, Split, agreement, build
from qgraph.switched import Variant, agreements

WIDTHS = (2, 4, 8, 16)
ROUNDS = 4
# A correction is by no more than so much a round: layers hide each other's noise.
MOST = 8.0

Bits = tuple[int, ...]
OnPoint = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Budget:
    """What weights may take: bytes, or bits for each on average."""

    mean_bits: float | None = None
    weight_bytes: int | None = None

    def limit(self, sizes: Sequence[int]) -> float:
        """In bits, for tensors of so many weights."""
        if self.weight_bytes is not None:
            return 8.0 * self.weight_bytes
        return (self.mean_bits or 0.0) * sum(sizes)

    def __str__(self) -> str:
        if self.weight_bytes is not None:
            return f"{self.weight_bytes:,} bytes"
        return f"{self.mean_bits:g} bits on average"


@dataclass(frozen=True)
class Unit:
    """Layers that share one tensor of `size` weights, and so its bits."""

    layers: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class Point:
    """Bits for each unit, and what the network built with them gave on the comparison part."""

    bits: Bits
    weight_bytes: int
    mean_bits: float
    agreement: Agreement
    uniform: bool = False


@dataclass(frozen=True)
class Mixed:
    """What a search found: the points measured, and the best for each budget."""

    units: tuple[Unit, ...]
    points: tuple[Point, ...]
    chosen: Mapping[Budget, Point]

    def front(self) -> set[Point]:
        """The points that no other one beats in bytes and in SQNR."""
        return {
            p for p in self.points if not any(_beats(other, p) for other in self.points)
        }  # fmt: skip


def _beats(a: Point, b: Point) -> bool:
    """True where `a` is no worse in either, and better in one."""
    one, two = (a.weight_bytes, -a.agreement.sqnr), (b.weight_bytes, -b.agreement.sqnr)
    return one != two and all(x <= y for x, y in zip(one, two, strict=True))


# -- profiles -------------------------------------------------------------------------------


def uniform(profile: Profile, width: int) -> Profile:
    """All weights of `width` bits, but for layers that the profile names."""
    return replace(profile, bits=replace(profile.bits, weight=width, weight_ends=width))


def overridden(profile: Profile, units: Sequence[Unit], bits: Bits) -> Profile:
    """`profile` with bits for the weights of every layer; activations keep theirs."""
    own = tuple(
        Override(glob.escape(name), weight, profile.override(name).activation)
        for unit, weight in zip(units, bits, strict=True)
        for name in unit.layers
    )
    return replace(
        profile, name=f"{profile.name}-mixed", overrides=(*own, *profile.overrides)
    )  # fmt: skip


def units_of(graph: Graph, floating: Graph) -> tuple[Unit, ...]:
    """Layers whose weights have bits to choose, in order; those with one tensor together."""
    found: dict[str, list[str]] = {}
    for node in graph.topological():
        if node.op not in COMPUTE or node.name not in floating.nodes:
            continue
        spec = graph.producer(node.inputs[1]).attrs.get("spec")
        if spec is not None and spec.role == "weight":
            found.setdefault(floating.nodes[node.name].inputs[1], []).append(node.name)
    sizes = {name: floating.nodes[name].attrs["value"].size for name in found}
    return tuple(Unit(tuple(layers), int(sizes[name])) for name, layers in found.items())


# -- the search -----------------------------------------------------------------------------


def search_bits(
    loaded: Graph,
    profile: Profile,
    plan: Plan,
    parts: Split,
    budgets: Iterable[Budget],
    on_point: OnPoint = lambda stage, done, total: None,
) -> Mixed:
    """Bits for each layer under each budget, all built by `plan`.

    Layers whose weights the profile names keep their bits. Ctrl-C ends the search for a budget;
    the best so far is kept. Raises UsageError for a budget that cannot be met.
    """
    budgets = list(budgets)
    search = _Search(loaded, profile, plan, parts)
    for done, width in enumerate(WIDTHS):
        on_point("widths", done, len(WIDTHS))
        search.try_everywhere(width)
    search.check(budgets)
    chosen = {}
    for done, budget in enumerate(budgets):
        chosen[budget] = search.best(
            budget, lambda i, n, d=done: on_point("bits", d * n + i, len(budgets) * n)
        )
    points = sorted(search.points, key=lambda p: (p.weight_bytes, -p.agreement.sqnr))
    return Mixed(search.units, tuple(points), chosen)


class _Search:
    def __init__(self, loaded: Graph, profile: Profile, plan: Plan, parts: Split) -> None:
        self.loaded, self.profile, self.plan, self.parts = loaded, profile, plan, parts
        self.original = loaded.copy()
        PassManager(FLOAT).run(self.original)
        self.units: tuple[Unit, ...] = ()
        self.noise: list[dict[int, float]] = []
        self.points: list[Point] = []
        self.failure: ExactnessError | None = None

    def try_everywhere(self, width: int) -> None:
        """Note what each layer costs at `width` on its own; widths that do not fit are left out."""
        try:
            floating, graph = self._build(uniform(self.profile, width))
        except ExactnessError as error:
            self.failure = error
            return
        if not self.units:
            self.units = units_of(graph, floating)
            self.noise = [{} for _ in self.units]
        variants = [Variant(False, _weights(graph, unit)) for unit in self.units]
        alone = agreements(graph, floating, self.parts.comparison, variants)
        reached = bounds(graph)
        for unit, noise, found in zip(self.units, self.noise, alone, strict=True):
            spec = graph.producer(graph.nodes[unit.layers[0]].inputs[1]).attrs["spec"]
            if all(reached[n].width <= self.profile.accumulator_bits for n in unit.layers):
                noise[spec.bits] = noise_of(found)  # not `width` where the profile has its own
        if all(width in noise or len(noise) == 1 for noise in self.noise):
            self._measure(graph, tuple(width if width in n else min(n) for n in self.noise), True)

    def check(self, budgets: Sequence[Budget]) -> None:
        if self.failure is not None and not any(self.noise):
            raise self.failure
        if not self.units:
            raise UsageError(
                "there are no layers with weights to give bits to", hint="leave out the budget"
            )
        sizes = [unit.size for unit in self.units]
        least = sum(size * min(n) for size, n in zip(sizes, self.noise, strict=True))
        for budget in budgets:
            if budget.limit(sizes) < least:
                raise UsageError(
                    f"{budget} is less than this network needs",
                    hint=f"the least is {-(-least // 8):,} bytes, "
                    f"{least / sum(sizes):.3g} bits on average",
                )

    def best(self, budget: Budget, on_round: Callable[[int, int], None]) -> Point:
        """The best point within `budget`: each round builds one, and corrects by what it shows."""
        sizes = [unit.size for unit in self.units]
        limit, noise = budget.limit(sizes), self.noise
        try:
            for done in range(ROUNDS):
                on_round(done, ROUNDS)
                bits = assign(noise, sizes, limit)
                if any(point.bits == bits for point in self.points):
                    break
                with suppress(ExactnessError):  # bits that the target cannot carry together
                    floating, graph = self._build(overridden(self.profile, self.units, bits))
                    point = self._measure(graph, bits)
                    noise = self._corrected(noise, graph, floating, point)
        except KeyboardInterrupt:
            if not self._within(limit):
                raise
        return max(self._within(limit), key=lambda p: p.agreement.sqnr)

    def _within(self, limit: float) -> list[Point]:
        sizes = [unit.size for unit in self.units]
        return [p for p in self.points if cost(p.bits, sizes) <= limit]

    def _build(self, profile: Profile) -> tuple[Graph, Graph]:
        return build(self.loaded, profile, self.plan, self.parts.calibration, Trace())

    def _measure(self, graph: Graph, bits: Bits, uniform: bool = False) -> Point:
        if not self.profile.accumulator_wraps:
            check_accumulators(graph, bounds(graph), self.profile.accumulator_bits)
        sizes = [unit.size for unit in self.units]
        total = cost(bits, sizes)
        found = agreement(self.original, graph, self.parts.comparison)
        point = Point(bits, -(-total // 8), total / max(sum(sizes), 1), found, uniform)
        self.points.append(point)
        return point

    def _corrected(
        self, noise: Sequence[Mapping[int, float]], graph: Graph, floating: Graph, point: Point
    ) -> list[dict[int, float]]:
        """Noise of each unit scaled by what it costs in its place, against what was thought."""
        variants = [Variant(True, _weights(graph, unit)) for unit in self.units]
        whole, *without = agreements(
            graph, floating, self.parts.comparison, [Variant(True), *variants]
        )
        corrected = []
        for known, width, found in zip(noise, point.bits, without, strict=True):
            thought, seen = known[width], noise_of(whole) - noise_of(found)
            factor = seen / thought if thought > 0 else 1.0
            factor = min(max(factor, 1 / MOST), MOST)
            corrected.append({bits: value * factor for bits, value in known.items()})
        return corrected


def _weights(graph: Graph, unit: Unit) -> frozenset[str]:
    return frozenset(graph.nodes[name].inputs[1] for name in unit.layers)


def noise_of(found: Agreement) -> float:
    """Noise at the outputs over their signal, both as power."""
    return float(10 ** (-found.sqnr / 10))


# -- giving out bits ------------------------------------------------------------------------


def cost(bits: Sequence[int], sizes: Sequence[int]) -> int:
    return sum(b * size for b, size in zip(bits, sizes, strict=True))


def assign(noise: Sequence[Mapping[int, float]], sizes: Sequence[int], limit: float) -> Bits:
    """Bits for each unit within `limit`, where `noise[unit][bits]` is what it costs.

    Starts from the fewest bits, and takes what saves the most noise for its bits as long as it
    fits. A larger limit never gives fewer bits in all.
    """
    bits = [min(options) for options in noise]
    left = limit - cost(bits, sizes)
    for steps in (_hull, _all_steps):
        offers = [
            (saved / (sizes[unit] * (to - start)), unit, start, to)
            for unit, options in enumerate(noise)
            for start, to, saved in steps(options)
        ]
        for _, unit, start, to in sorted(offers, key=lambda offer: (-offer[0], *offer[1:])):
            price = sizes[unit] * (to - start)
            if bits[unit] == start and price <= left:
                bits[unit], left = to, left - price
    return tuple(bits)


Step = tuple[int, int, float]  # from bits, to bits, noise saved


def _all_steps(options: Mapping[int, float]) -> list[Step]:
    return [
        (start, to, max(options[start] - options[to], 0.0))
        for start in options
        for to in options
        if start < to
    ]


def _hull(options: Mapping[int, float]) -> list[Step]:
    """Steps of falling worth: from each width to the one that saves the most noise a bit."""
    found, start = [], min(options)
    while True:
        steps = [s for s in _all_steps(options) if s[0] == start and s[2] > 0]
        if not steps:
            return found
        step = max(steps, key=lambda s: s[2] / (s[1] - s[0]))
        found.append(step)
        start = step[1]
