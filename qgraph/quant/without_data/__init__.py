"""Calibration without data: generated samples, and their statistics inside the network."""
