"""The process of an environment that is apart.

python -m qgraph.rl.environments.serve NAME, started by `separate_process.Apart`
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.rl.environments import Environment, make_here


def serve(make: Callable[[], Environment], asked: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until nobody asks any more: a line of JSON, and the bytes of an observation."""

    def answer(found: dict[str, Any], observation: Array | None = None) -> None:
        answers.write(json.dumps(found).encode() + b"\n")
        if observation is not None:
            answers.write(observation.tobytes())
        answers.flush()

    try:
        environment = make()
    except UsageError as error:
        answer({"error": error.message, "hint": error.hint})
        return
    shape, dtype = environment.shape, np.dtype(environment.dtype)
    answer({"shape": shape, "dtype": dtype.str, "actions": asdict(environment.actions)})
    for line in asked:
        what = json.loads(line)
        if what["what"] == "reset":
            answer({}, environment.reset(what["seed"]))
            continue
        action = what["action"]
        outcome = environment.step(action if environment.actions.discrete else np.float32(action))
        reward, discount = float(outcome.reward), float(outcome.discount)
        found = {"reward": reward, "discount": discount, "over": bool(outcome.over)}
        answer(found, outcome.observation)
    environment.close()


def main() -> None:
    # What libraries print goes elsewhere than answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(lambda: make_here(sys.argv[1]), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
