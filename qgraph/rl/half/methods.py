"""What learning in float16 may be told to do, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qgraph.errors import UsageError

# In the order of table 1 of the paper.
METHODS = (
    "hadam", "softplus-fix", "normal-fix", "kahan-momentum", "compound-scaling", "kahan-gradients",
)  # fmt: skip
LOSS_SCALING = "loss-scaling"  # the usual one, to compare with
KNOWN = (*METHODS, LOSS_SCALING)
MIXED = "mixed"
PRECISIONS = ("float32", "float16", MIXED, "float64")


def half_settings(text: str) -> dict[str, Any]:
    """Settings of a run in float16: `all`, `none`, or methods, comma separated.

    `mixed`, alone or before methods: parameters and what Adam remembers in float32, the rest in
    float16, with loss scaling (Micikevicius et al., 2017). Raises UsageError for what is not known.
    """
    whole = {"all": METHODS, "none": ()}
    if text in whole:
        return {"precision": "float16", "methods": whole[text]}
    names = tuple(part.strip() for part in text.split(","))
    mixed = names[0] == MIXED
    methods = (LOSS_SCALING, *names[1:]) if mixed else names
    for name in methods:
        if name in whole:
            raise UsageError(f"`{name}` stands alone", hint=f"--half {name}")
        if name == MIXED:
            raise UsageError("`mixed` stands before methods", hint="--half mixed,softplus-fix")
    check_methods(methods)
    return {"precision": MIXED if mixed else "float16", "methods": methods}


def check_methods(methods: Sequence[str]) -> None:
    """Raises UsageError for one that there is not, or that excludes another."""
    for name in methods:
        if name not in KNOWN:
            raise UsageError(
                f"no method of float16 is called `{name}`",
                hint=f"all, none, mixed, or of {', '.join(KNOWN)}",
            )
    if {"compound-scaling", LOSS_SCALING} <= set(methods):
        raise UsageError("losses are scaled by compound-scaling or by loss-scaling, not by both")
