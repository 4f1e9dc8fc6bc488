"""The pages of `docs/results/`: which data each shows, its table, its figure and its headline."""
