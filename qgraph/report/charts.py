"""Charts as inline SVG: small, without scripts, readable in black and white."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ldexp, log1p
from typing import Any

from qgraph.ir.types import QuantSpec, Role
from qgraph.words import noise_share, percent

Tensor = Mapping[str, Any]

WIDTH, TOP, BOTTOM, MARGIN = 360, 18, 88, 8
DOTS_UP_TO = 150
BARS = 30


def number(value: float) -> str:
    """Three digits, with a minus sign that is one."""
    return f"{value:.3g}".replace("-", "\u2212")


def thresholds(tensor: Tensor) -> list[float]:
    """Where clipping starts, both ends; where scales are per channel, the widest and narrowest."""
    exponents = tensor["exponent"]
    if exponents is None:
        return []
    spec = QuantSpec(tensor["bits"], tensor["signed"], Role(tensor["role"]))
    ends = [exponents] if isinstance(exponents, int) else [min(exponents), max(exponents)]
    found = {ldexp(code, -e) for e in ends for code in (spec.lo, spec.hi + 1) if code}
    return sorted(found)


def histogram(tensor: Tensor) -> str:
    """Counts, on a logarithmic scale, of what reaches a quantizer; its thresholds drawn in."""
    counts: Sequence[int] = tensor.get("counts") or ()
    lines = thresholds(tensor)
    if not counts:
        return ""
    width = ldexp(1.0, tensor["log2_width"])
    left = tensor["first_bin"] * width
    low, high = min(left, 0.0, *lines), max(left + len(counts) * width, 0.0, *lines)
    scale = (WIDTH - 2 * MARGIN) / (high - low)

    def at(value: float) -> float:
        return float(round(MARGIN + (value - low) * scale, 1))

    inside = [min(lines, default=low), max(lines, default=high)]
    if not tensor["signed"]:
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
    ends = dict.fromkeys((tensor["least"], 0.0, tensor["greatest"]))
    parts += _ticks((at(v), number(v)) for v in ends)
    label = f"histogram from {number(tensor['least'])} to {number(tensor['greatest'])}"
    return _svg(WIDTH, BOTTOM + 20, label, parts)


def _ticks(labels: Iterable[tuple[float, str]]) -> list[str]:
    """Labels under the axis, those left out that would touch one before."""
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


def noise_along(layers: Sequence[Mapping[str, Any]]) -> str:
    """SQNR of each layer's output in the order of the network; the weakest is named."""
    points = [(i, y) for i, y in enumerate(layers) if y["sqnr_db"] is not None]
    if len(points) < 2:
        return ""
    width, height, left, top, base = 1080, 190, 40, 14, 160
    values = [y["sqnr_db"] for _, y in points]
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
    places = [at(i, y["sqnr_db"]) for i, y in points]
    parts.append(f'<path class="line" d="M{"L".join(f"{x} {y}" for x, y in places)}"/>')
    if len(places) <= DOTS_UP_TO:
        parts += [
            f'<circle class="dot" cx="{x}" cy="{y}" r="3"><title>{escape(layer["name"])}: '
            f"{layer['sqnr_db']:.1f} dB</title></circle>"
            for (x, y), (_, layer) in zip(places, points, strict=True)
        ]
    worst = min(range(len(points)), key=lambda i: values[i])
    x, y = places[worst]
    anchor = "start" if x < width / 3 else "end" if x > width * 2 / 3 else "middle"
    parts.append(f'<circle class="ring" cx="{x}" cy="{y}" r="7"/>')
    least = number(round(values[worst], 1))
    parts.append(_text(x, y + 22, f"{points[worst][1]['name']}, {least} dB", anchor))
    parts.append(_text(left + 20, height - 6, "first layer", "start"))
    parts.append(_text(width - 40, height - 6, "last layer", "end"))
    return _svg(width, height, "SQNR of each layer's output, in dB", parts)


def sensitivity(found: Sequence[Mapping[str, Any]]) -> str:
    """Noise at the outputs where one layer alone is quantized: bars, the longest is the worst.

    A second, thinner bar where all but this layer is quantized, if that was measured.
    """
    known = [s for s in found if s["sqnr_db"] is not None]
    worst = sorted(known, key=lambda s: float(s["sqnr_db"]))[:BARS]
    if not worst:
        return ""
    names = [s["layer"] if len(s["layer"]) < 60 else "\u2026" + s["layer"][-58:] for s in worst]
    both = any(s.get("all_but_sqnr_db") is not None for s in worst)
    width, row, left = 1080, 36 if both else 24, 24 + 8 * max(map(len, names))
    kinds = [("sqnr_db", "bar", "", 14), ("all_but_sqnr_db", "rest", "all but it ", 8)]
    shares = [noise_share(s[key]) for s in worst for key, *_ in kinds if s.get(key) is not None]
    longest = max(shares) or 1.0
    parts = []
    for i, entry in enumerate(worst):
        y = row * i + 16
        parts.append(_text(left - 12, y, names[i], "end"))
        for key, style, words, thick in kinds:
            if entry.get(key) is None:
                continue
            share = noise_share(entry[key])
            length = round((width - left - 240) * share / longest, 1)
            parts.append(
                f'<rect class="{style}" x="{left}" y="{y - 11}" width="{length}" height="{thick}"/>'
            )
            value = f"{words}{percent(share)}, {entry[key]:.1f} dB".replace("-", "\u2212")
            parts.append(_text(left + length + 8, y if thick > 8 else y + 1, value, "start"))
            y += 14
    return _svg(width, row * len(worst) + 8, "noise at the outputs, one layer quantized", parts)


def pareto(mixed: Mapping[str, Any]) -> str:
    """SQNR over mean bits of weights: squares are alike everywhere, dots chosen layer by layer."""
    points = [p for p in mixed["points"] if p["sqnr_db"] is not None]
    if len(points) < 2:
        return ""
    width, left, top, base = 1080, 60, 16, 170
    values = [p["sqnr_db"] for p in points]
    low, high = 10 * (min(values) // 10), 10 * (max(values) // 10 + 1)
    most = max(p["mean_bits"] for p in points)

    def at(point: Mapping[str, Any]) -> tuple[float, float]:
        x = left + (width - left - 80) * point["mean_bits"] / most
        return round(x, 1), round(base - (base - top) * (point["sqnr_db"] - low) / (high - low), 1)

    parts = []
    for value in range(int(low), int(high) + 1, 10):
        y = round(base - (base - top) * (value - low) / (high - low), 1)
        parts.append(f'<path class="grid" d="M{left} {y}H{width - 20}"/>')
        parts.append(_text(left - 8, y + 4, number(value), "end"))
    front = sorted(at(p) for p in points if p["front"])
    parts.append(f'<path class="line" d="M{"L".join(f"{x} {y}" for x, y in front)}"/>')
    for point in points:
        x, y = at(point)
        title = (
            f"<title>{point['mean_bits']:.2f} bits, {point['weight_bytes']:,} bytes: "
            f"{point['sqnr_db']:.1f} dB</title>"
        )
        if point["uniform"]:
            shape = f'<rect class="bar" x="{x - 4}" y="{y - 4}" width="8" height="8">{title}</rect>'
        else:
            shape = f'<circle class="dot" cx="{x}" cy="{y}" r="4">{title}</circle>'
        parts.append(shape)
        if point["uniform"]:
            parts.append(_text(x, base + 16, number(point["mean_bits"]), "middle"))
        if point["kept"]:
            parts.append(f'<circle class="ring" cx="{x}" cy="{y}" r="8"/>')
            parts.append(_text(x, y - 13, "kept", "middle"))
    parts.append(_text(width - 40, base + 34, "mean bits of a weight", "end"))
    return _svg(width, base + 42, "SQNR at the outputs over mean bits of weights, in dB", parts)
