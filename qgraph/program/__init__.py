"""The integer program: the integer part of a calibrated graph, in few ops.

program = lower(graph)                      # a flat list of few ops, every shape and shift a number
codes = run(program, {entry: codes})        # plain numpy

The engine and every export are made from a program; none of them looks at the graph.
"""

from qgraph.program.lower import lower
from qgraph.program.program import Entry, Program, Step, Tensor, storage
from qgraph.program.run import run

__all__ = ["Entry", "Program", "Step", "Tensor", "lower", "run", "storage"]
