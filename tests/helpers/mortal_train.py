"""Run the command line in a process that kills itself:
``python -m tests.helpers.mortal_train N ...``.

The process is killed after N steps of training, as by a fault of its machine; with 0 it runs to the
end.
"""

from __future__ import annotations

import os
import signal
import sys

from qgraph.cli.start import main
from qgraph.train.loop import Trainer


def die_after(steps: int) -> None:
    """Kill this process after this number of steps."""
    one_step = Trainer._one_step

    def counted(self: Trainer, *arguments: object) -> None:
        one_step(self, *arguments)
        if self.at.step == steps:
            os.kill(os.getpid(), signal.SIGKILL)

    Trainer._one_step = counted


if __name__ == "__main__":
    steps = int(sys.argv.pop(1))
    if steps:
        die_after(steps)
    main()
