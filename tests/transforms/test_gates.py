"""Sums around gates keep the bits of the internal stage, as in the cells of recurrent layers."""

import re
from dataclasses import replace

import pytest

from qgraph.quant.profile import Bits
from tests.helpers.layers import Net, inserted
from tests.helpers.quantized import INT8


def widths(text: str, name: str) -> list[str]:
    """The bits of each input of a node, by the names of its quantizers; 8 for tables."""
    (line,) = (found for found in text.splitlines() if found.startswith(f"%{name} = "))
    inputs = re.findall(r"%([^,)]+)", line.partition("(")[2])
    return [i.rpartition("/q")[2] if "/q" in i else "8" for i in inputs]


def cell() -> tuple[Net, str]:
    """Two steps of a cell on `x`: each is c = f * c + i * g, then h = o * tanh(c)."""
    net = Net()
    gates = {g: net.op("sigmoid", net.fc(net.x, f"w{g}"), name=g) for g in "fio"}
    new = net.op("tanh", net.fc(net.x, "wg"), name="g")
    first = net.op("mul", gates["i"], new, name="first")
    kept = net.op("mul", gates["f"], first, name="kept")
    added = net.op("mul", gates["i"], new, name="added")
    state = net.op("add", kept, added, name="state")
    shown = net.op("tanh", state, name="shown")
    hidden = net.op("mul", gates["o"], shown, name="hidden")
    return net, net.fc(hidden, "after")


def test_a_state_has_16_bits_where_it_goes_on() -> None:
    text, _ = inserted(*cell())
    assert widths(text, "kept") == ["8", "16"]  # a gate, and the state before
    assert widths(text, "state") == ["16", "16"]
    assert widths(text, "shown") == ["8"]  # the index of a table
    assert widths(text, "after") == ["8", "8"]


@pytest.mark.parametrize(
    ("bits", "found"),
    [
        (Bits(internal=None, bias=32), "8"),
        (Bits(internal=12), "12"),
        (Bits(internal=24), "16"),
    ],
)
def test_the_internal_stage_of_the_profile_decides(bits, found) -> None:
    text, _ = inserted(*cell(), replace(INT8, bits=bits))
    assert widths(text, "state") == [found, found]


def test_the_argument_of_a_gate_is_narrowed_once() -> None:
    net = Net()
    part = net.op("reshape", net.fc(net.x, "w"), shape=(-1, 4), name="part")
    total = net.op("add", part, net.fc(net.x, "r"), name="total")
    text, _ = inserted(net, net.op("tanh", total, name="gate"))
    assert widths(text, "part") == ["16"]
    assert "%total = add(%part, %r/q16)" in text
    assert widths(text, "gate") == ["8"]


@pytest.mark.parametrize("op", ["relu", "identity"])
def test_other_sums_take_codes_of_activations(op) -> None:
    net = Net()
    total = net.op("add", net.fc(net.x, "a"), net.fc(net.x, "b"), name="total")
    y = net.fc(net.op(op, total), "after")
    text, _ = inserted(net, y)
    assert widths(text, "total") == ["8", "8"]


def test_a_sum_that_is_also_used_elsewhere_takes_them_too() -> None:
    net = Net()
    total = net.op("add", net.fc(net.x, "a"), net.fc(net.x, "b"), name="total")
    gated = net.op("mul", net.op("sigmoid", total), net.fc(total, "c"))
    text, _ = inserted(net, net.fc(gated, "after"))
    assert widths(text, "total") == ["8", "8"]
