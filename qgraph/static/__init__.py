"""Static mode: networks in fixed point without retraining."""
