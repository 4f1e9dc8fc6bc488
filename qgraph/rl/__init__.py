"""Policies as small programs: rewritten, packed, broadcast, run and trained (docs/rl.md)."""
