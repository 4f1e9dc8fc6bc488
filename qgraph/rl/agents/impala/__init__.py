"""IMPALA; see README.md."""
