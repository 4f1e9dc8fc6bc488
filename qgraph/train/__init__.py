"""Retraining: weights and thresholds trained together (TQT)."""
