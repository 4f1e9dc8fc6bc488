"""The methods of learning in float16, by name."""

from __future__ import annotations

from collections.abc import Sequence

from qgraph.errors import UsageError

# In the order of table 1 of the paper.
METHODS = (
    "hadam", "softplus-fix", "normal-fix", "kahan-momentum", "compound-scaling", "kahan-gradients",
)  # fmt: skip
LOSS_SCALING = "loss-scaling"  # the common method, for comparison
KNOWN = (*METHODS, LOSS_SCALING)


def check_methods(methods: Sequence[str]) -> None:
    """Raise UsageError for a method that is unknown, and for two that exclude each other."""
    for name in methods:
        if name not in KNOWN:
            raise UsageError(
                f"unknown method of float16 `{name}`",
                hint=f"choose all, none, or from {', '.join(KNOWN)}",
            )
    if {"compound-scaling", LOSS_SCALING} <= set(methods):
        raise UsageError("losses are scaled by compound-scaling or by loss-scaling, not by both")
