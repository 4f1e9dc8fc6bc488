"""Policies whose weights and thresholds are trained in few bits (TQT) while they learn."""
