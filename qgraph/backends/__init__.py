"""Backends: write a calibrated graph in the formats that targets run."""
