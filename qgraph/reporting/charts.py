"""Charts as inline SVG, small, without scripts, readable in black and white."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import ldexp, log1p

from qgraph.ir.types import QuantSpec
from qgraph.reporting.facts import LayerFacts, TensorFacts
from qgraph.static.facts import MixedFacts, PartFacts, PointFacts
from qgraph.words import noise_share, percent

WIDTH, TOP, BOTTOM, MARGIN = 360, 18, 88, 8
DOTS_UP_TO = 150
BARS = 30


def number(value: float) -> str:
    """A number with three digits, and a typographic minus sign."""
    return f"{value:.3g}".replace("-", "\u2212")


def thresholds(tensor: TensorFacts) -> list[float]:
    """Clipping thresholds, both ends; for scales per channel, the widest and narrowest."""
    entry = tensor.entry
    exponents = entry.exponent
    if exponents is None:
        return []
    spec = QuantSpec(entry.bits, entry.signed, entry.role)
    ends = [exponents] if isinstance(exponents, int) else [min(exponents), max(exponents)]
    found = {ldexp(code, -e) for e in ends for code in (spec.lo, spec.hi + 1) if code}
    return sorted(found)


def histogram(tensor: TensorFacts) -> str:
    """Histogram of a quantizer's input on a logarithmic scale, with its thresholds."""
    known = tensor.statistics
    if known is None or not known.counts:
        return ""
    counts, lines = known.counts, thresholds(tensor)
    width = ldexp(1.0, known.log2_width)
    left = known.first_bin * width
    low, high = min(left, 0.0, *lines), max(left + len(counts) * width, 0.0, *lines)
    scale = (WIDTH - 2 * MARGIN) / (high - low)

    def at(value: float) -> float:
        return float(round(MARGIN + (value - low) * scale, 1))

    inside = [min(lines, default=low), max(lines, default=high)]
    if not tensor.entry.signed:
        inside[0] = 0.0
    bars: dict[str, list[str]] = {"bar": [], "clip": []}
    tallest = log1p(max(counts))
    for i, count in enumerate(counts):
        if count:
            start = left + i * width
            kind = "bar" if inside[0] <= start and start + width <= inside[1] else "clip"
            height = max(round((BOTTOM - TOP - 4) * log1p(count) / tallest, 1), 1)
            thick = max(round(width * scale - 0.6, 1), 0.6)
            bars[kind].append(f"M{at(start)} {BOTTOM}v{-height:g}h{thick:g}v{height:g}")
    parts = [f'<path class="{k}" d="{"".join(d)}z"/>' for k, d in bars.items() if d]
    parts.append(f'<path class="axis" d="M{MARGIN} {BOTTOM}h{WIDTH - 2 * MARGIN}"/>')
    for value in lines:
        parts.append(f'<path class="limit" d="M{at(value)} {TOP - 4}V{BOTTOM + 4}"/>')
        parts.append(_text(at(value), TOP - 7, number(value), _anchor(at(value))))
    ends = dict.fromkeys((known.least, 0.0, known.greatest))
    parts += _ticks((at(v), number(v)) for v in ends)
    label = f"histogram from {number(known.least)} to {number(known.greatest)}"
    return _svg(WIDTH, BOTTOM + 20, label, parts)


def _ticks(labels: Iterable[tuple[float, str]]) -> list[str]:
    """Labels under the axis, without those that would overlap an earlier one."""
    parts, taken = [], -100.0
    for x, label in sorted(labels):
        if x - taken > 34:
            parts.append(f'<path class="axis" d="M{x} {BOTTOM}v4"/>')
            parts.append(_text(x, BOTTOM + 16, label, _anchor(x)))
            taken = x
    return parts


def _anchor(x: float) -> str:
    return "start" if x < 24 else "end" if x > WIDTH - 24 else "middle"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def noise_along(layers: Sequence[LayerFacts]) -> str:
    """SQNR of each layer's output in the order of the network; the weakest is named."""
    points = [
        (i, y.entry.name, y.entry.sqnr_db)
        for i, y in enumerate(layers)
        if y.entry.sqnr_db is not None
    ]
    if len(points) < 2:
        return ""
    width, height, left, top, base = 1080, 190, 40, 14, 160
    values = [sqnr for *_, sqnr in points]
    low, high = min(0.0, 10 * (min(values) // 10)), 10 * (max(values) // 10 + 1)

    def at(i: int, value: float) -> tuple[float, float]:
        x = left + 20 + (width - left - 60) * i / max(len(layers) - 1, 1)
        return round(x, 1), round(base - (base - top) * (value - low) / (high - low), 1)

    parts = []
    step = 10 if high - low <= 60 else 20
    for value in range(int(low), int(high) + 1, step):
        y = at(0, value)[1]
        parts.append(f'<path class="grid" d="M{left} {y}H{width - 20}"/>')
        parts.append(_text(left - 8, y + 4, number(value), "end"))
    places = [at(i, sqnr) for i, _, sqnr in points]
    parts.append(f'<path class="line" d="M{"L".join(f"{x} {y}" for x, y in places)}"/>')
    if len(places) <= DOTS_UP_TO:
        parts += [
            f'<circle class="dot" cx="{x}" cy="{y}" r="3"><title>{escape(name)}: '
            f"{sqnr:.1f} dB</title></circle>"
            for (x, y), (_, name, sqnr) in zip(places, points, strict=True)
        ]
    worst = min(range(len(points)), key=lambda i: values[i])
    x, y = places[worst]
    anchor = "start" if x < width / 3 else "end" if x > width * 2 / 3 else "middle"
    parts.append(f'<circle class="ring" cx="{x}" cy="{y}" r="7"/>')
    least = number(round(values[worst], 1))
    parts.append(_text(x, y + 22, f"{points[worst][1]}, {least} dB", anchor))
    parts.append(_text(left + 20, height - 6, "first layer", "start"))
    parts.append(_text(width - 40, height - 6, "last layer", "end"))
    return _svg(width, height, "SQNR of each layer's output, in dB", parts)


def sensitivity(found: Sequence[PartFacts]) -> str:
    """Noise at the outputs with one layer quantized alone, as bars: the longest is the worst.

    A thinner second bar for all except this layer quantized, if that was measured.
    """
    known = [(part.sqnr_db, part) for part in found if part.sqnr_db is not None]
    worst = [part for _, part in sorted(known, key=lambda pair: pair[0])[:BARS]]
    if not worst:
        return ""
    names = [p.layer if len(p.layer) < 60 else "\u2026" + p.layer[-58:] for p in worst]
    both = any(part.all_but_sqnr_db is not None for part in worst)
    width, row, left = 1080, 36 if both else 24, 24 + 8 * max(map(len, names))
    longest = max((noise_share(db) for part in worst for db, *_ in _bars(part)), default=0) or 1.0
    parts = []
    for i, part in enumerate(worst):
        y = row * i + 16
        parts.append(_text(left - 12, y, names[i], "end"))
        for decibels, style, words, thick in _bars(part):
            share = noise_share(decibels)
            length = round((width - left - 240) * share / longest, 1)
            parts.append(
                f'<rect class="{style}" x="{left}" y="{y - 11}" width="{length}" height="{thick}"/>'
            )
            value = f"{words}{percent(share)}, {decibels:.1f} dB".replace("-", "\u2212")
            parts.append(_text(left + length + 8, y if thick > 8 else y + 1, value, "start"))
            y += 14
    return _svg(width, row * len(worst) + 8, "noise at the outputs, one layer quantized", parts)


def _bars(part: PartFacts) -> list[tuple[float, str, str, int]]:
    """Decibels, style, words and thickness of each bar of a part."""
    bars = [(part.sqnr_db, "bar", "", 14), (part.all_but_sqnr_db, "rest", "all others ", 8)]
    return [(db, style, words, thick) for db, style, words, thick in bars if db is not None]


def pareto(mixed: MixedFacts) -> str:
    """SQNR over mean bits of weights; squares: the same bits everywhere, dots: bits by layer."""
    points = [(p, p.sqnr_db) for p in mixed.points if p.sqnr_db is not None]
    if len(points) < 2:
        return ""
    width, left, top, base = 1080, 60, 16, 170
    values = [sqnr for _, sqnr in points]
    low, high = 10 * (min(values) // 10), 10 * (max(values) // 10 + 1)
    most = max(p.mean_bits for p, _ in points)

    def at(point: PointFacts, sqnr: float) -> tuple[float, float]:
        x = left + (width - left - 80) * point.mean_bits / most
        return round(x, 1), round(base - (base - top) * (sqnr - low) / (high - low), 1)

    parts = []
    for value in range(int(low), int(high) + 1, 10):
        y = round(base - (base - top) * (value - low) / (high - low), 1)
        parts.append(f'<path class="grid" d="M{left} {y}H{width - 20}"/>')
        parts.append(_text(left - 8, y + 4, number(value), "end"))
    front = sorted(at(p, sqnr) for p, sqnr in points if p.front)
    parts.append(f'<path class="line" d="M{"L".join(f"{x} {y}" for x, y in front)}"/>')
    for point, sqnr in points:
        x, y = at(point, sqnr)
        title = (
            f"<title>{point.mean_bits:.2f} bits, {point.weight_bytes:,} bytes: "
            f"{sqnr:.1f} dB</title>"
        )
        if point.uniform:
            shape = f'<rect class="bar" x="{x - 4}" y="{y - 4}" width="8" height="8">{title}</rect>'
        else:
            shape = f'<circle class="dot" cx="{x}" cy="{y}" r="4">{title}</circle>'
        parts.append(shape)
        if point.uniform:
            parts.append(_text(x, base + 16, number(point.mean_bits), "middle"))
        if point.kept:
            parts.append(f'<circle class="ring" cx="{x}" cy="{y}" r="8"/>')
            parts.append(_text(x, y - 13, "kept", "middle"))
    parts.append(_text(width - 40, base + 34, "mean bits of a weight", "end"))
    return _svg(width, base + 42, "SQNR at the outputs over mean bits of weights, in dB", parts)
