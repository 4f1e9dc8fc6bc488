"""Topics of native kernels."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic, first_table

LARGE = 1 << 24


def _both(result: Result) -> Table:
    return result.table("float32, both")


def _at_sizes(result: Result) -> Table:
    """Ratios of each variant, by size, on one thread."""
    table = _both(result).where(threads=1)
    variants = list(table.columns)[3:]
    made = Table("", {"elements": "", **dict.fromkeys(variants, ".2f")})
    for row in table.rows:
        made.add(f"{row['elements']:,}", *(row[variant] for variant in variants))
    return made


def _large(result: Result, variant: str) -> float:
    return float(_both(result).row(elements=LARGE, threads=1)[variant])


QUANTIZER = Topic(
    "quantizer",
    "The trainable quantizer",
    lambda result: (
        f"{_large(result, 'fused'):.2f} times the floor; TensorFlow's own ops "
        f"{_large(result, 'native'):.1f}, its fake_quant {_large(result, 'TF fake_quant'):.2f}"
    ),
    "forward and backward of 16M float32 elements, per tensor, one thread; the floor is one copy "
    "and one maximum of two tensors",
    _both,
    _at_sizes,
    Bars("time, as a multiple of the floor", log=True, line=1.0),
)


def _op(result: Result, name: str) -> float:
    return float(result.tables[0].row(op=name)["a call"])


SMALL_TENSORS = Topic(
    "small_tensors",
    "Where small tensors' time goes",
    lambda result: (
        f"a call of the quantizer costs {_op(result, 'quantize'):.1f} us, of "
        f"TensorFlow's fake_quant {_op(result, 'TF fake_quant'):.1f} us"
    ),
    "processor time of one op among 64 in a graph, one thread",
    first_table,
    lambda result: result.tables[0].only("op", "a call", "its work"),
    Bars("us of one op with 64K elements", stacked=True),
)

TOPICS = (QUANTIZER, SMALL_TENSORS)
