"""Vectors for hardware: the inputs and outputs of each layer, in files."""
