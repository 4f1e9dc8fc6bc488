"""Timings of qgraph, and measurements on real networks and images."""
