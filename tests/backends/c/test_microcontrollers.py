"""C on emulated microcontrollers is numpy's integers, code by code, with their instructions."""

import re
from pathlib import Path

import numpy as np
import pytest

from qgraph.backends.c.c_form import write_program
from qgraph.backends.c.packing import by_eight, packed, padded
from qgraph.program import Step
from tests.helpers.boards import on_board
from tests.helpers.c_programs import assert_compiled, needs_compiler, program_of, tensor
from tests.helpers.forms import assert_codes, random_codes
from tests.helpers.layer_programs import every_size, largest_sums

PROGRAMS = pytest.mark.parametrize("make", [every_size, largest_sums])


@needs_compiler
@PROGRAMS
def test_plain_kernels(make, tmp_path: Path) -> None:
    layers = make()
    program = layers.program()
    assert assert_compiled(program, tmp_path, layers.codes()) > len(program.exits)


@PROGRAMS
@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("name", ["Cortex-M4", "Cortex-M55"])
def test_kernels_with_instructions_of_the_processor(
    name: str, traced: bool, make, tmp_path: Path
) -> None:
    """Traced, all sums are compared; without, vectors also compute the steps behind sums."""
    layers = make()
    program = layers.program()
    run = on_board(program, name, tmp_path, traced=traced)
    codes = layers.codes()
    found = run(codes)
    assert_codes(program, codes, found)
    assert len(found) > len(program.exits) if traced else found.keys() == set(program.exits)


def test_tensors_may_have_the_names_of_kernels(tmp_path: Path) -> None:
    names = "work", "pixels", "patch", "first", "multiply_pairs", "packed_u8", "vaddq_s32"
    x, acc, total, y, w, b, other = names
    window = {"strides": (1, 1), "dilations": (1, 1), "pads": ((1, 1), (1, 1)), "groups": 1}
    attrs = {"shift": 6, "rounding": "double", "overflow": "saturate", "low": -128, "high": 127}
    program = program_of(
        tensor(x, (1, 3, 3, 2), 0, 255),
        tensor(acc, (1, 3, 3, 4), -(2**20), 2**20),
        tensor(total, (1, 3, 3, 4), -(2**20) - 9, 2**20 + 9),
        tensor(y, (1, 3, 3, 4)),
        tensor(other, (1, 3, 3, 4)),
        steps=[
            Step("conv2d", (x, w), acc, window),
            Step("add", (acc, b), total, {}),
            Step("requantize", (total,), y, attrs),
            Step("reshape", (y,), other, {"shape": (1, 3, 3, 4)}),
        ],
        constants={w: np.arange(72).reshape(3, 3, 2, 4) - 36, b: [-9, 0, 4, 9]},
        exits=[y, other],
    )
    codes = random_codes(program)
    assert_codes(program, codes, on_board(program, "Cortex-M55", tmp_path)(codes))


@pytest.mark.parametrize("name", ["Cortex-M4", "RV32IMAC"])
def test_plain_kernels_on_a_board(name: str, tmp_path: Path) -> None:
    layers = every_size()
    codes = layers.codes()
    found = on_board(layers.program(), name, tmp_path, ("-DNET_PLAIN",))(codes)
    assert_codes(layers.program(), codes, found)


def test_layers_use_the_fast_kernels(tmp_path: Path) -> None:
    """Each layer of the programs above has packed weights, so the tests are of these kernels."""
    write_program(every_size().program(), tmp_path)
    text = (tmp_path / "net.c").read_text()
    layers = re.findall(r"^static void layer_.*?^}", text, re.DOTALL | re.MULTILINE)
    assert len(layers) == 50
    assert all(re.search(r"\b(packed|depthwise)_[ui]\d+\(", layer) for layer in layers)
    assert sum("VECTOR_CHAINS" in layer for layer in layers) > 30


def test_packed_weights_have_the_documented_order() -> None:
    weights = np.arange(1, 1 + 18 * 5).reshape(18, 5)
    found = packed(weights)
    assert found.shape == (2, 2, 2, 16, 2) and padded(5, 18) == (8, 32)
    for k in range(32):
        for o in range(8):
            wanted = weights[k, o] if k < 18 and o < 5 else 0
            assert found[o // 4, k // 16, o % 4 // 2, k % 16, o % 2] == wanted


def test_depthwise_weights_have_the_documented_order() -> None:
    weights = np.arange(6 * 11).reshape(2, 3, 11, 1)
    found = by_eight(weights)
    assert found.shape == (2, 6, 8)
    for place in range(6):
        for c in range(16):
            wanted = weights[place // 3, place % 3, c, 0] if c < 11 else 0
            assert found[c // 8, place, c % 8] == wanted
