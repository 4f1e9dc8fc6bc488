"""ONNX policies with the nodes, names and opsets that exporters of RL libraries write.

They are built by hand after the public sources that each file names. Weights are random.
"""
