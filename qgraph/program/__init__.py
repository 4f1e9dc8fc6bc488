"""The integer program: the integer part of a calibrated graph, in few ops.

program = lower(graph)                      # a flat list of few ops; all shapes are numbers
codes = run(program, {entry: codes})        # plain numpy

The engine and every export are generated from a program; none of them uses the graph.
"""

from qgraph.program.lower import lower
from qgraph.program.program import Entry, Program, Step, Tensor, storage
from qgraph.program.run import run
from qgraph.program.segments import segments

__all__ = ["Entry", "Program", "Step", "Tensor", "lower", "run", "segments", "storage"]
