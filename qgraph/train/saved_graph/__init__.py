"""The training graph in TensorFlow's own formats, which train without qgraph."""
