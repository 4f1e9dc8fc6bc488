"""Learning in float16: six methods, each useful alone.

Sections and equations are those of Low-Precision Reinforcement Learning (Bjorck et al., 2021).
"""
