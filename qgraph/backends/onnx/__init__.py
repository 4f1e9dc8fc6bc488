"""ONNX as output: integer ops, QDQ, QONNX."""
