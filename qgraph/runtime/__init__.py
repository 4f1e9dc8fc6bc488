"""Quantized networks run on integers by native code, without TensorFlow.

session = Session.open("out")                       # what `qgraph quantize` wrote
outputs = session.run({"image": images})            # float in, float out, exact in between

engine = Engine.open("network.qgi", threads=2)      # codes in, codes out
"""

from qgraph.backends.engine import LEVELS, Engine, levels
from qgraph.runtime.session import Session

__all__ = ["LEVELS", "Engine", "Session", "levels"]
