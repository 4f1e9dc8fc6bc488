"""Quantizers of other papers in qgraph's trainer, to compare TQT with them."""
