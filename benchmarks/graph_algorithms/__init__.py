"""Time graph algorithms of qgraph beside networkx and onnx-graphsurgeon."""
