"""Topics of the compiler: compile time, calibration time, graph algorithms."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic, first_table

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


CALIBRATION_TIME = Topic(
    "calibration_time",
    "Calibration time",
    lambda result: (
        f"{result.tables[0].row(run='calibration')['ratio']:.1f} times float inference "
        "of the same images"
    ),
    "MobileNetV1, 50 images, thresholds by KL-J, without a search; against TensorFlow in turns",
    first_table,
    lambda result: result.tables[0].only("run", "ratio"),
    Bars("time, as a multiple of TensorFlow's", line=1.0),
)


def _ratio(result: Result, task: str) -> float:
    return float(result.tables[0].row(task=task, nodes=5_000)["ratio"])


def _tasks(result: Result) -> Table:
    made = Table("", {"task": "", "qgraph": ".3g", "library, with construction": ".3g"})
    for row in result.tables[0].where(nodes=5_000).rows:
        made.add(row["task"], row["qgraph, ms"], row["with construction, ms"])
    return made


GRAPH_ALGORITHMS = Topic(
    "graph_algorithms",
    "Graph algorithms",
    lambda result: (
        f"networkx takes {_ratio(result, 'topological order'):.1f} times as long to order a graph, "
        f"{_ratio(result, 'find a cycle'):.0f} times to find a cycle"
    ),
    "5,000 nodes, with the construction of the library's graph, processor time of one thread",
    first_table,
    _tasks,
    Bars("processor time, ms, 5,000 nodes", log=True),
)

TOPICS = (COMPILE_TIME, CALIBRATION_TIME, GRAPH_ALGORITHMS)
