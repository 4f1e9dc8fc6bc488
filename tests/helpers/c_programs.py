"""Compile programs as C and compare them with numpy; small programs to write."""

from pathlib import Path

import numpy as np

from qgraph.backends.c.c_form import Compiled, build, write_program
from qgraph.ir.types import QuantSpec
from qgraph.program import Entry, Program, Step, Tensor
from tests.helpers.forms import Codes, assert_codes, needs_tool

needs_compiler = needs_tool("c")
SANITIZED = ("-O1", "-fsanitize=undefined,address", "-fno-sanitize-recover=all")


def compiled(program: Program, folder: Path, flags=SANITIZED, traced: bool = True) -> Compiled:
    unit = write_program(program, folder)
    executable = folder / f"run-{traced}"
    trace = (f"-D{unit.net.upper()}_TRACE",) if traced else ()
    build(folder, unit.net, executable, (*flags, *trace))
    return Compiled(unit, executable, traced)


def assert_compiled(program: Program, folder: Path, codes: Codes, flags=SANITIZED) -> int:
    """Assert that C gives the codes of numpy. Returns the number of tensors that C traces."""
    found = compiled(program, folder, flags)(codes)
    assert_codes(program, codes, found)
    return len(found)


def tensor(name: str, shape: tuple, low: int = -128, high: int = 127, exponent=0) -> Tensor:
    return Tensor(name, shape, low, high, max(-low, high), exponent)


def program_of(
    *tensors: Tensor,
    steps: list[Step],
    constants=None,
    exits=(),
    name: str = "net",
    batch_free=True,
) -> Program:
    """A program. Tensors that are not constants and that no step computes are entries."""
    constants = {n: np.asarray(c) for n, c in (constants or {}).items()}
    known = {t.name: t for t in tensors}
    for key, codes in constants.items():
        known[key] = tensor(key, codes.shape, int(codes.min()), int(codes.max()))
    made = {step.output for step in steps}
    entries = [
        Entry(t.name, t.name, QuantSpec(8, t.low < 0, "input", 0))
        for t in tensors
        if t.name not in made
    ]
    held = {n: c.astype(known[n].storage) for n, c in constants.items()}
    return Program(name, known, held, tuple(entries), tuple(exits), tuple(steps), batch_free)


def mixed_samples() -> Program:
    """A program with a fixed batch, because it mixes samples."""
    attrs = {"shift": 3, "rounding": "half_away", "overflow": "saturate", "low": -128, "high": 127}
    return program_of(
        tensor("x", (2, 3)),
        tensor("turned", (3, 2)),
        tensor("acc", (3, 2), -128 * 12, 127 * 12),
        tensor("y", (3, 2)),
        steps=[
            Step("transpose", ("x",), "turned", {"perm": (1, 0)}),
            Step("matmul", ("turned", "w"), "acc", {}),
            Step("requantize", ("acc",), "y", attrs),
        ],
        constants={"w": [[5, -3], [7, 2]]},
        exits=["y"],
        batch_free=False,
    )


def images_that_are_one_batch() -> Program:
    """A convolution of two images, whose order is reversed."""
    window = {"strides": (2, 1), "dilations": (1, 2), "pads": ((1, 0), (0, 1)), "groups": 2}
    attrs = {"shift": 2, "rounding": "half_up", "overflow": "wrap", "low": -16, "high": 15}
    parts = {"begin": (1, 0, 0, 0), "end": (None,) * 4, "strides": (-1, 1, 1, 1)}
    return program_of(
        tensor("x", (2, 5, 4, 4)),
        tensor("acc", (2, 2, 3, 6), -128 * 200, 128 * 200),
        tensor("y", (2, 2, 3, 6), -16, 15),
        tensor("turned", (2, 2, 3, 6), -16, 15),
        tensor("sum", (2, 2, 3, 6), -32, 30),
        steps=[
            Step("conv2d", ("x", "w"), "acc", window),
            Step("requantize", ("acc",), "y", attrs),
            Step("slice", ("y",), "turned", parts),
            Step("add", ("turned", "y"), "sum", {}),
        ],
        constants={"w": np.arange(-36, 36).reshape(3, 2, 2, 6) % 23 - 11},
        exits=["sum"],
        batch_free=False,
    )
