"""The pages of `docs/results/`: the data of each, its table, its figure and its headline."""
