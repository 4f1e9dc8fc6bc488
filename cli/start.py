"""The entry point: Ctrl-C prints no traceback, even while modules are imported.

Modules that Python does not load at its start are imported in `main`, which handles interrupts.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130  # exit code of `qgraph.errors.Interrupted`
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Import the command line and run it."""
    try:
        import signal

        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if usual:  # not in the background of a shell, which has it ignored
            signal.signal(signal.SIGINT, _leave)
        from qgraph.cli.main import main as run
        from qgraph.stopping import raise_interrupts

        if usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        raise_interrupts()
        run()
    except KeyboardInterrupt:  # before or after the verb, which reports it with advice
        sys.exit(INTERRUPTED)


def _leave(number: int, frame: FrameType | None) -> None:
    """End the process at once: an exception might be dropped by an import, with a traceback."""
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
