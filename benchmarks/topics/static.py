"""Topics of static quantization and of the compiler."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic

STAGES = ("import s", "passes s", "exponents s", "emit s")


def _compile_headline(result: Result) -> str:
    rows = {row["graph"]: row for row in result.table("Compile time").rows}
    small, large = rows["chain 500"]["ms a node"], rows["chain 50,000"]["ms a node"]
    return f"{small:.2f} ms a node at 500 nodes, {large:.2f} ms at 50,000"


COMPILE_TIME = Topic(
    "compile_time",
    "Compile time",
    _compile_headline,
    "processor time of one thread, without TensorFlow's import and without calibration",
    lambda result: result.table("Compile time"),
    lambda result: _of_a_node(result.table("Compile time")),
    Bars("processor time, ms a node", stacked=True),
)


def _of_a_node(table: Table) -> Table:
    """Milliseconds of each stage, a node of the graph."""
    made = Table(table.title, {"graph": "", **dict.fromkeys(STAGES, ".3f")})
    for row in table.rows:
        made.add(row["graph"], *(1e3 * row[stage] / row["nodes"] for stage in STAGES))
    return Table(
        made.title,
        {heading.removesuffix(" s"): how for heading, how in made.columns.items()},
        [{k.removesuffix(" s"): v for k, v in row.items()} for row in made.rows],
    )


TOPICS = (COMPILE_TIME,)
