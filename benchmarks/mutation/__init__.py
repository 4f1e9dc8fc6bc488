"""Mutation tests of the code that must be exact (docs/results/mutation.md)."""
