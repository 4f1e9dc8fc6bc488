"""The entry point: Ctrl-C prints no traceback, even while modules are imported."""

from __future__ import annotations

import sys

from qgraph.errors import Interrupted
from qgraph.stopping import raise_interrupts


def main() -> None:
    """Import the command line and run it."""
    raise_interrupts()
    try:
        from qgraph.cli.main import main as run

        run()
    except KeyboardInterrupt:  # before or after the verb, which reports it with advice
        sys.exit(Interrupted.exit_code)


if __name__ == "__main__":
    main()
