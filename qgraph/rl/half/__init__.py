"""Learning in float16: six methods, each of use by itself (Low-Precision RL, Bjorck et al., 2021)."""
