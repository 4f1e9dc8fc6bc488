"""Vectors for hardware: what goes into each layer and what comes out, in files."""
