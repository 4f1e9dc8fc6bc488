"""Quantization: target profiles, scale groups, calibration."""
