"""D4PG; see README.md."""
