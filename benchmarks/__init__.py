"""Timings, and the real networks and images they run on."""
