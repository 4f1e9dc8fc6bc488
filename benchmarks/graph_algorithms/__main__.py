"""Print the tables: ``python -m benchmarks.graph_algorithms``.

qgraph and networkx or onnx-graphsurgeon do the same tasks, and their results must be equal. The
library is timed on an existing graph of its type, and together with the construction of that graph
from a qgraph `Graph`, which would be necessary after every change of the `Graph`. The ratio is to
the time with construction. Times are medians of processor time, taken in turns.
"""

from __future__ import annotations

import typer

from benchmarks.graph_algorithms.networkx_tasks import match_tasks, order_tasks, set_tasks
from benchmarks.graph_algorithms.onnx_tasks import kept, onnx_tasks
from benchmarks.graph_algorithms.timing import REPEATS
from benchmarks.result import JsonFile, report
from benchmarks.tables import Table

SIZES = (500, 5_000)
TIMES = ("qgraph, ms", "library, ms", "with construction, ms")


def main(json_file: JsonFile = None) -> None:
    """Time each task, and print the table."""
    table = Table(
        "Graph algorithms",
        {"task": "", "nodes": ",d", **dict.fromkeys(TIMES, ".3g"), "ratio": ".1f"},
        notes=[f"medians of processor time, {REPEATS} runs in turns; {kept(SIZES[0])}"],
    )
    for task in (
        *(t for nodes in SIZES for t in (*order_tasks(nodes), *set_tasks(nodes))),
        *match_tasks(),
        *(t for nodes in SIZES for t in onnx_tasks(nodes)),
    ):
        table.add(*task.row())
    report("benchmarks.graph_algorithms", [table], json_file)


if __name__ == "__main__":
    typer.run(main)
