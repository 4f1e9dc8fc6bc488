"""Policies as small programs: rewritten, packed, broadcast, acted by, and learnt (docs/rl.md)."""
