"""A sample and its outputs as arrays of C, for examples on microcontrollers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qgraph.backends.c.c_text import WIDTH, folded
from qgraph.backends.c.source import CUnit, Port
from qgraph.ir.types import Codes
from qgraph.program.layers import elements

TEXT = """\
#ifndef {NET}_SAMPLE_H
#define {NET}_SAMPLE_H

/* The codes of one sample, and those that the network computes from them. */
#include "{net}.h"

{arrays}

#endif
"""


def sample_header(unit: CUnit, codes: Mapping[str, Codes]) -> str:
    """The header `NET_sample.h`; codes: of all entries and exits."""
    arrays = [_array(unit, port, codes) for port in (*unit.entries, *unit.exits)]
    return TEXT.format(net=unit.net, NET=unit.net.upper(), arrays="\n".join(arrays))


def _array(unit: CUnit, port: Port, codes: Mapping[str, Codes]) -> str:
    tensor = unit.program.tensors[port.tensor]
    held = np.asarray(codes[port.tensor]).reshape(-1)[: elements(tensor)]
    numbers = "\n".join(folded("    " + ", ".join(map(str, held.tolist())), WIDTH))
    declared = f"static const {tensor.storage}_t {_name(unit, port)}[{_size(unit, port)}]"
    return f"{declared} = {{\n{numbers}\n}};"


def _size(unit: CUnit, port: Port) -> str:
    return f"{unit.net}_{port.name}_SIZE".upper()


def _name(unit: CUnit, port: Port) -> str:
    return f"{unit.net}_sample_{port.name}"


def ends(unit: CUnit) -> Mapping[str, str]:
    """Parts of a program that runs the sample: arrays for outputs, arguments, comparisons."""
    tensors, made = unit.program.tensors, {p: f"{unit.net}_made_{p.name}" for p in unit.exits}
    arrays = [
        f"static {tensors[p.tensor].storage}_t {name}[{_size(unit, p)}];"
        for p, name in made.items()
    ]
    same = [f"memcmp({name}, {_name(unit, p)}, sizeof {name}) == 0" for p, name in made.items()]
    return {
        "outputs": "\n".join(arrays),
        "arguments": ", ".join([*(_name(unit, p) for p in unit.entries), *made.values()]),
        "same": "\n        && ".join(same),
    }
