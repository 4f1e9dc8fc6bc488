"""The facts as one self-contained HTML page, without network or libraries, also for print."""

from __future__ import annotations

import re
from html import escape

from qgraph.distribution import install_hint
from qgraph.errors import UsageError
from qgraph.reporting import charts
from qgraph.reporting.facts import ReportFacts
from qgraph.stored.manifest import Exponent
from qgraph.words import noise_share, percent

REWRITES_SHOWN = 40
NODES_SHOWN = 20
_SUPERSCRIPT = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)


def render(facts: ReportFacts) -> str:
    """The report as HTML. Raises UsageError if jinja2 is not installed."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise UsageError(
            "the page needs jinja2", hint=f"{install_hint('jinja2')}, or use --json"
        ) from None
    environment = Environment(
        loader=PackageLoader("qgraph.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        scale=scale,
        percent=percent,
        decibel=decibel,
        number=charts.number,
        shorten=shorten,
        prose=prose,
        breakable=breakable,
    )
    template = environment.get_template("report.html.j2")
    weakest = min(
        (y for y in facts.layers if y.entry.sqnr_db is not None),
        key=lambda y: y.entry.sqnr_db or 0.0,
        default=None,
    )
    advised = [step.anchor for step in facts.next if step.anchor.startswith("layer-")]
    return template.render(
        **vars(facts),
        opened=next(iter(advised), weakest and weakest.id),
        charts=charts,
        weakest=weakest,
        so_far=any(y.so_far_sqnr_db is not None for y in facts.layers),
        noise_share=noise_share,
        shared=[g for g in facts.scale_groups if not g.inside_layer],
        inner=[g for g in facts.scale_groups if g.inside_layer],
        rewrites_shown=REWRITES_SHOWN,
        nodes_shown=NODES_SHOWN,
    )


def scale(exponent: Exponent) -> str:
    """The step of an exponent, `2^-exponent`; of several, the finest and the coarsest."""
    if exponent is None:
        return "?"
    ends = [exponent] if isinstance(exponent, int) else [max(exponent), min(exponent)]
    return "\u2026".join(f"2{str(-e).translate(_SUPERSCRIPT)}" for e in dict.fromkeys(ends))


def prose(text: str) -> str:
    """HTML of a sentence: names in backticks, minus signs, percent signs that stay with numbers."""
    marked = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
    return re.sub(r"(?<=[ (])-(?=\d)", "\u2212", marked).replace(" %", "\u00a0%")


def breakable(name: str) -> str:
    """HTML of a node's name that may break after slashes."""
    return escape(name).replace("/", "/<wbr>")


def decibel(value: float | None) -> str:
    """One decimal; a dash for a value that was not measured, or without noise."""
    return "\u2013" if value is None else f"{value:.1f}".replace("-", "\u2212")


def shorten(text: str, most: int = 220) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"
