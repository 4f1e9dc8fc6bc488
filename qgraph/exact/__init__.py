"""Exactness: the integer reference, bounds, comparison."""
