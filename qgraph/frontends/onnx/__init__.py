"""The front door for ONNX: a model file, with its external data, to a Graph.

`model` reads the file into nodes, `importing` and `builder` take them over one after the other,
`ops` maps each op to the IR, `opaque` runs what is not understood. Images come and
go in NCHW, as in the model; each layer works in NHWC, between transposes of which
`sink-transposes` leaves those at the rim.
"""

from __future__ import annotations

from qgraph.frontends.onnx.importing import import_model
from qgraph.frontends.onnx.model import parse, read

__all__ = ["import_model", "parse", "read"]
