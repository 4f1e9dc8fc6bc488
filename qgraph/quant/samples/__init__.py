"""Samples: read, checked, split into chunks; those that do not fit into memory go to files."""
