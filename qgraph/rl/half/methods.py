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
PRECISIONS = ("float32", "float16", "mixed", "float64")


def half_settings(text: str) -> dict[str, Any]:
    """Settings of a run in float16: `all`, `none`, `mixed`, or methods, comma separated.

    mixed: parameters and what Adam remembers in float32, the rest in float16, with loss scaling
    (Micikevicius et al., 2017). Raises UsageError for what is not known.
    """
    if text == "mixed":
        return {"precision": "mixed", "methods": (LOSS_SCALING,)}
    whole = {"all": METHODS, "none": ()}
    methods = whole[text] if text in whole else tuple(part.strip() for part in text.split(","))
    for name in methods:
        if name in ("mixed", *whole):
            raise UsageError(f"`{name}` stands alone", hint=f"--half {name}")
    check_methods(methods)
    return {"precision": "float16", "methods": methods}


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
