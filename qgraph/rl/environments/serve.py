"""The process of an environment that is apart.

python -m qgraph.rl.environments.serve NAME, started by `qgraph.rl.environments.apart.Apart`
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import IO, Any

from qgraph.errors import UsageError
from qgraph.rl.environments import Environment, make_here


def serve(make: Callable[[], Environment], asked: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until nobody asks any more: pairs of an error, or None, and what was found."""

    def answer(error: tuple[str, str | None] | None, found: Any = None) -> None:
        pickle.dump((error, found), answers)
        answers.flush()

    try:
        environment = make()
    except UsageError as error:
        answer((error.message, error.hint))
        return
    answer(None, (environment.shape, environment.dtype, environment.actions))
    try:
        while True:
            what, arguments = pickle.load(asked)
            answer(None, getattr(environment, what)(*arguments))
    except EOFError:
        environment.close()


def main() -> None:
    # What libraries print goes elsewhere than answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(lambda: make_here(sys.argv[1]), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
