"""Mutants of what has to be exact: do the tests notice them (docs/results/mutation.md)?"""
