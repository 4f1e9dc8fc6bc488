"""The figures of the TQT paper (Jain et al., 2019), drawn from this package's quantizer.

`python -m benchmarks.figures` draws them. `curves.py`, `gradients.py`, `toy.py`, `cycle.py` and
`adam.py` compute the numbers, and tests/train/test_tqt_*.py compare these with the claims of the
paper; every other file draws.
"""
