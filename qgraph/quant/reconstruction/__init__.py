"""Reconstruction: weight codes of layers that match the outputs of the float network."""
