"""The passes, one per file. `qgraph.recipes` lists which run, and in what order."""
