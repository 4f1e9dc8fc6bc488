"""Real networks in fixed point, one file for each."""
