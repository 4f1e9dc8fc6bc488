"""Write float graphs as ONNX: the results of float passes, for any ONNX runtime."""
