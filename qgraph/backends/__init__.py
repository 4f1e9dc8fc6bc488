"""Backends: from a calibrated graph to what a target runs."""
