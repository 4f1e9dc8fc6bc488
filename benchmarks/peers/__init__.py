"""Other tools, used as in their documentation."""
