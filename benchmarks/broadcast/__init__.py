"""Time the way of weights from a learner to its actors: ``python -m benchmarks.broadcast``."""
