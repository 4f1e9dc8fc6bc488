"""Graph algorithms of qgraph against networkx and onnx-graphsurgeon."""
