"""ONNX out: integer ops, QDQ, QONNX."""
