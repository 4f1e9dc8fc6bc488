"""The training graph in TensorFlow's formats, to train it without qgraph."""
