"""Patterns, the matcher, the rewriter and the log of rewrites and refusals."""
