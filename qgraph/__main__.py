"""`python -m qgraph` is the command line."""

from qgraph.cli.start import main

if __name__ == "__main__":
    main()
