"""Pattern, matcher, rewriter and the log of what was rewritten or refused."""
