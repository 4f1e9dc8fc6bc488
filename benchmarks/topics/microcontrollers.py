"""The topic of exported C on emulated microcontrollers."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic, first_table

PEER, BEFORE = "TFLM, CMSIS-NN", "qgraph, before"


def _products(result: Result) -> Table:
    made = Table("", {"case": "", "by": "", "a product": ".2f"})
    for row in result.tables[0].rows:
        made.add(f"{row['network']}, {row['processor']}", row["by"], row["a product"])
    return made.pivot("case", "by", "a product")


def _ratios(result: Result, processor: str, other: str) -> list[float]:
    """Instructions of another way for one of ours, for each network."""
    rows = result.tables[0].where(processor=processor)
    ours = {row["network"]: row["instructions"] for row in rows.where(by="qgraph").rows}
    theirs = {row["network"]: row["instructions"] for row in rows.where(by=other).rows}
    return [theirs[name] / ours[name] for name in ours]


def _headline(result: Result) -> str:
    wrong = sum(row["different"] for row in result.tables[0].where(by="qgraph").rows)
    peer = _ratios(result, "Cortex-M4", PEER)
    before = _ratios(result, "Cortex-M55", BEFORE)
    return (
        f"{wrong} bytes differ; TFLM with CMSIS-NN executes {min(peer):.1f} to {max(peer):.1f} "
        f"times as many instructions on a Cortex-M4; plain loops {min(before):.0f} to "
        f"{max(before):.0f} times as many on a Cortex-M55"
    )


MCU = Topic(
    "mcu",
    "C on microcontrollers",
    _headline,
    "four networks of the sizes of MLPerf Tiny, random weights, profile tflm, emulated by QEMU",
    first_table,
    _products,
    Bars("instructions for a multiplication", log=True),
)
TOPICS = (MCU,)
