"""Run quantized networks on integers in native code, without TensorFlow.

session = Session.open("out")                     # a directory that `qgraph quantize` wrote
outputs = session.run({"image": images})          # floats in, floats out, integers inside

engine = Engine.open("network.qgi", threads=2)    # codes in, codes out
"""

from qgraph.backends.engine import LEVELS, Engine, levels
from qgraph.runtime.session import Session

__all__ = ["LEVELS", "Engine", "Session", "levels"]
