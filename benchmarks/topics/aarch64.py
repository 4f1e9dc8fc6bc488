"""The topic of the engine on 64-bit Arm."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic, first_table

OURS, PEER, PRODUCT = "qgraph", "XNNPACK", "a product"


def _products(result: Result) -> Table:
    made = Table("", {"case": "", "by": "", PRODUCT: ".2f"})
    for row in result.tables[0].rows:
        made.add(f"{row['processor']}: {row['layer']}", row["by"], row[PRODUCT])
    return made.pivot("case", "by", PRODUCT)


def _share(result: Result, processor: str) -> str:
    """Our instructions as shares of those of XNNPACK, from the least to the most."""
    rows = result.tables[0].where(processor=processor)
    ours = {row["layer"]: row["instructions"] for row in rows.where(by=OURS).rows}
    peer = {row["layer"]: row["instructions"] for row in rows.where(by=PEER).rows}
    found = [ours[name] / peer[name] for name in ours]
    return f"{min(found):.2f} to {max(found):.2f}"


def _headline(result: Result) -> str:
    wrong = sum(row["different"] for row in result.tables[0].rows)
    names = dict.fromkeys(row["processor"] for row in result.tables[0].rows)
    shares = ", ".join(f"{_share(result, name)} on a {name}" for name in names)
    return f"instructions, of those of XNNPACK: {shares}; {wrong} codes differ"


AARCH64 = Topic(
    "aarch64",
    "The integer engine on 64-bit Arm",
    _headline,
    "single layers with random weights, one thread, emulated by QEMU, which counts no cycles",
    first_table,
    _products,
    Bars("instructions for a product"),
)
TOPICS = (AARCH64,)
