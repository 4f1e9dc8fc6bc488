"""The end of a chain for deployment: a static policy, exact to the bit."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from qgraph.choices import PackedForm
from qgraph.errors import UsageError
from qgraph.rl.compress.chain_policy import FLOAT, ChainPolicy, Task
from qgraph.rl.compress.link import End


@dataclass(frozen=True)
class Static(End):
    """Make an integer program, calibrated on the observations.

    bits: of weights, 8 to 2; None for those of a `quantize` in front of it, or else 8. First and
    last layers have 8 bits.
    `policy.file.write("policy.qpol")` writes it, and `qgraph export` makes ONNX, C and other forms
    from the file. It has the first output only. Imports TensorFlow when it is called.
    Raises UsageError for other bits, and for bits that differ from `quantize`; UnsupportedError for
    a policy without an integer form, CalibrationError without observations.
    """

    name: ClassVar[str] = "static"

    bits: int | None = None

    def __post_init__(self) -> None:
        if self.bits is not None:
            check_bits(self.bits)

    def __call__(self, policy: ChainPolicy, task: Task) -> ChainPolicy:
        from qgraph.rl.learn.frozen import write_policy
        from qgraph.rl.policy import pack, read_policy

        observations, bits = task.checked_observations(), self.bits_for(policy)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.pb"
            write_policy(path, policy.program, policy.weights, {})
            network = read_policy(path)
        file = pack(network, policy.head, bits, PackedForm.STATIC, observations)
        return replace(policy, bits=(bits, None, None), file=file)

    def bits_for(self, policy: ChainPolicy) -> int:
        given, first, last = policy.bits
        if given == FLOAT:
            return self.bits or 8
        if self.bits not in (None, given) or {first, last} - {None, 8}:
            raise UsageError(
                f"`quantize` sets {given} bits, first {first}, last {last}; a static policy has "
                f"{self.bits or given}, and 8 in its first and last layers",
                hint="leave `quantize` out, or its first and last",
            )
        check_bits(given)
        return given


def check_bits(bits: int) -> None:
    """Raise UsageError for bits that static policies do not support."""
    from qgraph.rl.policy.build import STATIC_BITS

    if bits not in STATIC_BITS:
        raise UsageError(f"a static policy can have weights of 2 to 8 bits, not {bits}")
