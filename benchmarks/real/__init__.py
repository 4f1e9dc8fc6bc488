"""What real networks become in fixed point, one file for each."""
