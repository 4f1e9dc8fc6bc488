"""The process of an environment (`separate_process`).

python -m qgraph.rl.environments.serve NAME, started by `separate_process.SeparateEnvironment`
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import IO

import numpy as np

from qgraph.errors import UsageError
from qgraph.ir.types import Array
from qgraph.records import from_json
from qgraph.rl.environments import Environment, make_in_process
from qgraph.rl.environments.messages import Description, Request, StepResult


def serve(make: Callable[[], Environment], asked: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more: a line of JSON, and the bytes of an observation."""

    def answer(message: object, observation: Array | None = None) -> None:
        answers.write(json.dumps(message, default=vars).encode() + b"\n")
        if observation is not None:
            answers.write(observation.tobytes())
        answers.flush()

    try:
        environment = make()
    except UsageError as error:
        answer({"error": error.message, "hint": error.hint})
        return
    shape, dtype = environment.shape, np.dtype(environment.dtype)
    answer(Description(shape, dtype.str, environment.actions))
    kind = np.int64 if environment.actions.discrete else np.float32
    for line in asked:
        request = from_json(Request, json.loads(line))
        if request.what == "reset":
            answer({}, environment.reset(request.seed))
            continue
        outcome = environment.step(np.asarray(request.action, kind))
        reward, discount = float(outcome.reward), float(outcome.discount)
        answer(StepResult(reward, discount, bool(outcome.over)), outcome.observation)
    environment.close()


def main() -> None:
    # Answers have their own stream; libraries print to standard error.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(lambda: make_in_process(sys.argv[1]), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
