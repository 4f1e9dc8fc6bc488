"""Do the tests notice a change of the code? Mutants of what has to be exact (docs/mutation.md)."""
