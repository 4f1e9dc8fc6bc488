"""The front end for TensorFlow: frozen graphs, SavedModels and checkpoints as a Graph."""
