"""`python -m qgraph` is the command line."""

from qgraph.cli.main import main

if __name__ == "__main__":
    main()
