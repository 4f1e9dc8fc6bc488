"""Float graphs as ONNX: what a recipe of float passes made, for any ONNX runtime."""
