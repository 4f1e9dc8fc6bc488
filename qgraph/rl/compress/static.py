"""The end of a chain for deployment: a static policy, exact to the bit."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from qgraph.errors import UsageError
from qgraph.rl.compress.form import End, Policy, Task


@dataclass(frozen=True)
class Static(End):
    """An integer program with weights of so many bits, calibrated on the observations.

    `policy.file.write("policy.qpol")` writes it, of which `qgraph export` makes ONNX, C and other
    forms. It has the first output alone. Imports TensorFlow when it is called.
    Raises UsageError for other bits than 8 to 2, UnsupportedError for what has no integer form,
    CalibrationError without observations.
    """

    bits: int = 8

    def __post_init__(self) -> None:
        from qgraph.rl.policy.build import STATIC_BITS

        if self.bits not in STATIC_BITS:
            raise UsageError(f"a static policy has weights of 2 to 8 bits, not {self.bits}")

    def __call__(self, policy: Policy, task: Task) -> Policy:
        from qgraph.rl.learn.frozen import write_policy
        from qgraph.rl.policy import pack, read_policy

        seen = task.seen()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.pb"
            write_policy(path, policy.program, policy.weights, {})
            network = read_policy(path)
        file = pack(network, policy.head, self.bits, "static", seen)
        return replace(policy, bits=(self.bits, None, None), file=file)
