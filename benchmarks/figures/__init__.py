"""The figures of the TQT paper (Jain et al., 2019), drawn from this package's own quantizer.

`python -m benchmarks.figures` draws them. `curves.py`, `gradients.py`, `toy.py`, `cycle.py` and
`adam.py` make the numbers, and tests/train/test_tqt_*.py hold them against what the paper claims;
each other file draws.
"""
