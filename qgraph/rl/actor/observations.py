"""Errors and hints for observations of a wrong shape."""

from __future__ import annotations

from qgraph.errors import UsageError


def wrong_shape(found: tuple[int, ...], wanted: tuple[int, ...], who: str = "") -> UsageError:
    """The error for observations [n, *found] or [*found] given to a policy that takes `wanted`.

    who: the environment that gave them. The hint covers images whose channels are at the other end.
    """
    given = f"`{who}` gives observations {list(found)}" if who else f"found {list(found)}"
    one = ", ".join(map(str, wanted))
    text = f"observations are [n, {one}], {given}"
    return UsageError(text, hint=layout_hint(found, wanted) or "")


def layout_hint(found: tuple[int, ...], wanted: tuple[int, ...]) -> str | None:
    """How to turn images [c, h, w] into [h, w, c] or back; None if neither would fit."""
    if len(wanted) != 3 or len(found) < 3:
        return None
    sample = tuple(found[-3:])
    if (*sample[1:], sample[0]) == tuple(wanted):
        orders, move = ("[c, h, w]", "[h, w, c]"), "-3, -1"
    elif (sample[2], *sample[:2]) == tuple(wanted):
        orders, move = ("[h, w, c]", "[c, h, w]"), "-1, -3"
    else:
        return None
    return f"these are {orders[0]}, the policy takes {orders[1]}: numpy.moveaxis(x, {move})"
