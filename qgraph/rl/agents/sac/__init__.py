"""SAC; see README.md."""
