"""Real networks in fixed point, with a file for each."""
