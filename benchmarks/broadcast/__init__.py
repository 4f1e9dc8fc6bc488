"""Time the broadcast of weights to actors: ``python -m benchmarks.broadcast``."""
