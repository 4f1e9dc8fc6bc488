"""Front end for ONNX: loads a model file, with its external data, as a Graph.

`model` reads the file into nodes, `importing` and `builder` import them one after the other, `ops`
maps each op to the IR, `opaque` runs unknown ops. Inputs and outputs stay in NCHW, as in the model;
each layer works in NHWC, between transposes. `sink-transposes` leaves only those at the ends.
"""

from __future__ import annotations

from qgraph.frontends.onnx.importing import import_model
from qgraph.frontends.onnx.model import parse, read

__all__ = ["import_model", "parse", "read"]
