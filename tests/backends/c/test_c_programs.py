"""Compiled C is numpy's integers, code by code, under the sanitizers."""

import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.backends.c import c_form
from qgraph.backends.c.c_form import build, compiler, packed, refused, write_program
from qgraph.backends.c.memory import ALIGNMENT, Lifetime, plan
from qgraph.errors import ExactnessError, UnsupportedError
from qgraph.ir.types import ROUNDINGS
from qgraph.program import Step
from qgraph.program.layers import layers
from tests.helpers.c_programs import (
    SANITIZED,
    assert_compiled,
    compiled,
    images_that_are_one_batch,
    mixed_samples,
    needs_compiler,
    program_of,
    tensor,
)
from tests.helpers.forms import assert_codes, random_codes
from tests.helpers.generators.programs import programs, random_program


@needs_compiler
@settings(max_examples=20)
@given(program=programs(10))
def test_random_programs(program, tmp_path_factory) -> None:
    shown = assert_compiled(program, tmp_path_factory.mktemp("c"), random_codes(program))
    assert shown >= len(program.steps) / 2


@needs_compiler
def test_without_trace_exits_are_the_same(tmp_path: Path) -> None:
    program = random_program(7, 14)
    codes = random_codes(program)
    run = compiled(program, tmp_path, ("-O3",), traced=False)
    found = run(codes)
    assert_codes(program, codes, found)
    assert found.keys() == set(program.exits)


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_every_compiler_that_is_here(name: str, tmp_path: Path, monkeypatch) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    monkeypatch.setattr(c_form, "COMPILERS", (name,))
    program = random_program(11, 16)
    assert_compiled(program, tmp_path, random_codes(program), ("-O2",))


def requantize(shift, rounding: str, low: int, high: int, overflow: str = "saturate") -> Step:
    attrs = {"shift": shift, "rounding": rounding, "overflow": overflow, "low": low, "high": high}
    return Step("requantize", ("x",), "y", attrs)


WIDE = 2**40
SHIFTS = (0, 1, 2, 7, 31, 32, 45, 62, 63, -1, -20, -61, -80, (0, 1, 2, 3, -1, -40, 62, 31))


@needs_compiler
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_every_shift(rounding: str, tmp_path: Path) -> None:
    """Ties, ends and signs, for codes of 3 and of 41 bits, in one program for each rounding."""
    steps, tensors, spans = [], [], {"x": (-6, 6), "wide": (-WIDE, WIDE)}
    for x in spans:
        for i, shift in enumerate(SHIFTS):
            for bits, overflow in ((8, "saturate"), (33, "saturate"), (5, "wrap")):
                y = tensor(f"{x}/{i}/{bits}", (1, 8), -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
                step = requantize(shift, rounding, y.low, y.high, overflow)
                steps.append(Step("requantize", (x,), y.name, step.attrs))
                tensors.append(y)
    entries = [tensor(n, (1, 8), *span) for n, span in spans.items()]
    exits = [t.name for t in tensors]
    program = program_of(*entries, *tensors, steps=steps, exits=exits)
    rng = np.random.default_rng(1)
    near = (1 << rng.integers(0, 40, (200, 8))) * rng.choice([-3, -1, 1, 3], (200, 8)) // 2
    wide = np.clip(near + rng.integers(-1, 2, near.shape), -WIDE, WIDE)
    codes = {"x": rng.integers(-6, 7, (200, 8)), "wide": wide}
    assert assert_compiled(program, tmp_path, codes) == len(exits)


@needs_compiler
@pytest.mark.parametrize(("high", "bits"), [(2**31 - 1, 32), (2**31, 64)])
def test_sums_are_as_wide_as_they_can_get(high: int, bits: int, tmp_path: Path) -> None:
    """255 * 8421504 + 127 is the largest int32; one more needs int64, and both are right."""
    x, rest = tensor("x", (1, 1), 0, 255), 127 if bits == 32 else 128
    acc = tensor("acc", (1, 1), 0, 255 * 8421504)
    y = tensor("y", (1, 1), 0, high)
    program = program_of(
        x,
        acc,
        y,
        steps=[Step("matmul", ("x", "w"), "acc", {}), Step("add", ("acc", "b"), "y", {})],
        constants={"w": [[8421504]], "b": [rest]},
        exits=["y"],
    )
    codes = {"x": np.array([[255], [0]])}
    assert_compiled(program, tmp_path, codes)
    layer = (tmp_path / "net.c").read_text().partition("layer_acc")[2]
    assert (f"const int{bits}_t y" in layer) and (f"const int{96 - bits}_t y" not in layer)


@needs_compiler
def test_partial_sums_may_be_wider_than_sums(tmp_path: Path) -> None:
    """Inputs are 200..255, so 255 * 9,000,000 exceeds int32 before the negative terms are added."""
    acc = replace(tensor("acc", (1, 1), 0, 55 * 9_000_000), magnitude=510 * 9_000_000)
    step = Step("matmul", ("x", "w"), "acc", {})
    weights = {"w": [[9_000_000], [-9_000_000]]}
    x = tensor("x", (1, 2), 200, 255)
    program = program_of(x, acc, steps=[step], constants=weights, exits=["acc"])
    codes = {"x": np.array([[255, 200], [255, 255]])}
    assert_compiled(program, tmp_path, codes)


HOSTILE = (
    *("*/ }", "/* a", "int", "x??/", 'quote" \\', "9 lives", "", "i", "ä\n\x00", "Class", "class"),
    *("clamp_i32", "INT32_MAX", "net_run", "layer_int", "a" * 300, "a" * 299, "main", "to"),
)


@needs_compiler
def test_names_can_be_anything(tmp_path: Path) -> None:
    steps = [Step("clip", (a,), b, {"low": -3, "high": None}) for a, b in pairwise(HOSTILE)]
    steps.insert(9, Step("pad", (HOSTILE[9],), "??) pad", {"paddings": ((0, 0), (0, 0))}))
    steps[10] = Step("clip", ("??) pad",), HOSTILE[10], {"low": -2, "high": 5})
    tensors = [tensor(name, (1, 3)) for name in (*HOSTILE, "??) pad")]
    program = program_of(*tensors, steps=steps, exits=[HOSTILE[4], HOSTILE[-1]], name="*/ string")
    codes = {HOSTILE[0]: np.array([[-7, 0, 9], [1, 2, 3]])}
    assert assert_compiled(program, tmp_path, codes) == len(HOSTILE)
    (tmp_path / "included.cpp").write_text('#include "string_net.h"\n')
    command = [compiler(), "-x", "c++", "-Wall", "-Werror", "-fsyntax-only", "included.cpp"]
    subprocess.run(command, check=True, cwd=tmp_path)


@needs_compiler
def test_an_entry_and_a_constant_may_be_exits_and_moves_may_read_them(tmp_path: Path) -> None:
    program = program_of(
        tensor("x", (1, 4)),
        tensor("flat", (1, 2, 2)),
        tensor("last", (1, 4)),
        steps=[
            Step("reshape", ("x",), "flat", {"shape": (1, 2, 2)}),
            Step("reshape", ("flat",), "last", {"shape": (1, 4)}),
        ],
        exits=["x", "last"],
    )
    codes = random_codes(program, 1)
    assert assert_compiled(program, tmp_path, codes) == 3


@needs_compiler
@pytest.mark.parametrize("make", [mixed_samples, images_that_are_one_batch])
def test_a_program_may_mix_its_samples(make, tmp_path: Path) -> None:
    program = make()
    codes = random_codes(program, 5)
    assert assert_compiled(program, tmp_path, codes) == len(program.steps)


LAYER = """\
/* acc: conv2d to 1x2x2x2 */
static void layer_acc(const uint8_t *x_value, int32_t *row, int32_t *work, uint8_t *patch,
    uint8_t *to)
{
    static const window at = {.height = 4, .width = 4, .channels = 1, .kernel_height = 3,
        .kernel_width = 3, .stride_y = 2, .stride_x = 2, .dilation_y = 1, .dilation_x = 1, .top = 0,
        .left = 1, .outputs = 2, .groups = 1, .columns = 2};

    for (int32_t first = 0; first < 4; first += 2) {
        const int32_t pixels = 4 - first < 2 ? 1 : 2;

        packed_u8(x_value, w_packed, OFFSETS(w_offsets), row, work, patch, first, pixels, &at);
        for (int32_t q = 0; q < pixels; ++q) {
            const int32_t p = first + q;
            const int32_t *const sums = row + 4 * q;

            for (int32_t c = 0; c < 2; ++c) {
                const int32_t i = 2 * p + c;
                const int32_t acc = sums[c]; /* acc, 2^-9 */
                TRACE(0, i, acc);
                const int32_t sum = acc - 7; /* sum, 2^-9 */
                TRACE(1, i, sum);
                const int32_t relu = max_i32(sum, 0); /* relu, 2^-9 */
                TRACE(2, i, relu);
                const int32_t out = saturate_u8_i32(short_half_even_i32(relu, 5)); /* out, 2^-4 */
                TRACE(3, i, out);
                to[i] = (uint8_t)out;
            }
        }
    }
}
"""


def small_conv():
    window = {"strides": (2, 2), "dilations": (1, 1), "pads": ((0, 1), (1, 0)), "groups": 1}
    attrs = {"shift": 5, "rounding": "half_even", "overflow": "saturate", "low": 0, "high": 255}
    return program_of(
        tensor("x", (1, 4, 4, 1), 0, 255, 4),
        tensor("acc", (1, 2, 2, 2), -(2**19), 2**19, 9),
        tensor("sum", (1, 2, 2, 2), -(2**19) - 7, 2**19, 9),
        tensor("relu", (1, 2, 2, 2), 0, 2**19, 9),
        tensor("out", (1, 2, 2, 2), 0, 255, 4),
        steps=[
            Step("conv2d", ("x", "w"), "acc", window),
            Step("add", ("acc", "b"), "sum", {}),
            Step("clip", ("sum",), "relu", {"low": 0, "high": None}),
            Step("requantize", ("relu",), "out", attrs),
        ],
        constants={"w": np.arange(-9, 9).reshape(3, 3, 1, 2), "b": [-7]},
        exits=["out"],
    )


def test_a_layer_reads_like_one(tmp_path: Path) -> None:
    write_program(small_conv(), tmp_path)
    text = (tmp_path / "net.c").read_text()
    assert LAYER in text
    assert not re.search(r"\b(float|double|malloc|calloc|alloca)\b", text)
    assert re.findall(r"#include (.*)", text) == ['"net.h"', "<string.h>", "<arm_mve.h>"]
    assert re.findall(r"#include (.*)", (tmp_path / "net.h").read_text()) == ["<stdint.h>"]


def test_steps_join_where_their_last_input_is_made() -> None:
    """In a residual block, the sum is computed beside the second branch, and the first branch is
    stored.
    """
    made = [tensor(n, (1, 4)) for n in ("x", "a", "b", "b2", "sum", "out", "unused")]
    program = program_of(
        *made,
        steps=[
            Step("matmul", ("x", "w"), "a", {}),
            Step("matmul", ("x", "w"), "b", {}),
            Step("clip", ("a",), "unused", {"low": 0, "high": None}),
            Step("clip", ("b",), "b2", {"low": 0, "high": None}),
            Step("add", ("b2", "a"), "sum", {}),
            Step("clip", ("sum",), "out", {"low": 0, "high": None}),
        ],
        constants={"w": np.ones((4, 4))},
        exits=["out"],
    )
    found = layers(program)
    assert [(layer.made, layer.stored) for layer in found] == [
        (("a",), ("a",)),
        (("b", "b2", "sum", "out"), ("out",)),
    ]


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_values_that_live_at_the_same_time_do_not_overlap(spans: list) -> None:
    lives = {str(i): Lifetime(size, min(a, b), max(a, b)) for i, (size, a, b) in enumerate(spans)}
    offsets, total = plan(lives)
    for a in lives:
        end = offsets[a] + lives[a].size
        assert offsets[a] % ALIGNMENT == 0 and end <= total
        for b in lives:
            if a < b and lives[a].overlaps(lives[b]):
                assert end <= offsets[b] or offsets[b] + lives[b].size <= offsets[a]
    busiest = max(sum(s for s, a, b in spans if min(a, b) <= t <= max(a, b)) for t in range(10))
    assert busiest <= total <= sum(-(-s // ALIGNMENT) * ALIGNMENT for s, _, _ in spans)


CALLER = """\
#include "one.h"
#include "two.h"
#include <stdio.h>
#include <string.h>

int main(void)
{
    static one_arena memory;
    static uint8_t x[ONE_X_VALUE_SIZE], in_one[ONE_OUT_SIZE], in_two[TWO_OUT_SIZE];

    for (int i = 0; i < ONE_X_VALUE_SIZE; ++i)
        x[i] = (uint8_t)(16 * i);
    memset(&memory, 0xa5, sizeof memory);
    one_run_in(&memory, x, in_one);
    two_run(x, in_two);
    return memcmp(in_one, in_two, sizeof in_one);
}
"""


@needs_compiler
def test_two_networks_in_one_firmware_one_in_memory_of_its_caller(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_program(replace(small_conv(), name=name), tmp_path)
    (tmp_path / "caller.c").write_text(CALLER)
    files = [tmp_path / f"{name}.c" for name in ("one", "two", "caller")]
    command = [compiler(), "-std=c99", "-DONE_NO_STATIC_ARENA", *SANITIZED, *files]
    subprocess.run([*command, "-o", tmp_path / "caller"], check=True)
    subprocess.run([tmp_path / "caller"], check=True)


@needs_compiler
def test_the_test_prints_pass_and_fail(tmp_path: Path) -> None:
    program = small_conv()
    run = compiled(program, tmp_path, traced=False)
    codes = random_codes(program, samples=5)
    inputs, outputs = tmp_path / "inputs.bin", tmp_path / "outputs.bin"
    inputs.write_bytes(packed(run.unit, ["x"], codes))

    def test(*words) -> tuple[int, str]:
        done = subprocess.run([run.executable, *words], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    assert test(inputs, outputs) == (0, "")
    assert test(inputs, "--check", outputs) == (0, "PASS: 5 samples\n")
    right = outputs.read_bytes()
    outputs.write_bytes(right[:17] + bytes([right[17] ^ 1]) + right[18:])
    assert test(inputs, "--check", outputs) == (1, "FAIL: sample 2, out, code 1 differs\n")
    outputs.write_bytes(right[:-1])
    assert test(inputs, "--check", outputs) == (
        1,
        "FAIL: the file of outputs ends before sample 4\n",
    )
    inputs.write_bytes(inputs.read_bytes()[:-1])
    assert test(inputs, outputs)[0] == 2 and "is incomplete" in test(inputs, outputs)[1]
    assert test()[0] == 2


@needs_compiler
def test_codes_out_of_range_are_refused(tmp_path: Path) -> None:
    x, y = tensor("x", (1, 3), -8, 7), tensor("y", (1, 3), 0, 7)
    steps = [Step("clip", ("x",), "y", {"low": 0, "high": None})]
    program = program_of(x, y, steps=steps, exits=["y"])
    run = compiled(program, tmp_path, traced=False)
    (tmp_path / "inputs.bin").write_bytes(np.array([1, -8, 8], np.int8).tobytes())
    command = [run.executable, tmp_path / "inputs.bin", tmp_path / "outputs.bin"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "sample 0 has a code out of range" in done.stderr


def test_what_has_no_c_is_refused_by_name(tmp_path: Path) -> None:
    large = program_of(tensor("x", (1, 2**31)), steps=[], exits=["x"])
    assert "x: more than" in (refused(large) or "")
    with pytest.raises(UnsupportedError, match="x: more than"):
        write_program(large, tmp_path)


@needs_compiler
def test_warnings_are_errors(tmp_path: Path) -> None:
    unit = write_program(small_conv(), tmp_path)
    source = tmp_path / "net.c"
    source.write_text(source.read_text() + "static int unused;\n")
    with pytest.raises(ExactnessError, match="unused"):
        build(tmp_path, unit.net, tmp_path / "run")
