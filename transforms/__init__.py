"""The passes, one per file. `qgraph.recipes` says which run, and in what order."""
