"""The engine's file: its bytes are a promise, and damage to them is an error, never a crash."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph import kernels
from qgraph.errors import GraphError, LoadError
from qgraph.program import run
from qgraph.program.ops import OPS
from tests.helpers.forms import random_codes
from tests.helpers.program_builder import ProgramBuilder, every_op

if kernels.native_engine() is None:
    pytest.skip("the native extension isn't built", allow_module_level=True)

from qgraph.backends.engine import Engine, engine_file
from qgraph.backends.engine.file import sealed
from qgraph.backends.engine.records import HEADER, STEP, STORAGES, TENSOR

EVERY_OP = Path(__file__).parents[2] / "fused_ops" / "tests" / "every_op.qgi"
WHOLE = engine_file(every_op())
MEMORY = 1 << 26


def small_file() -> bytes:
    builder = ProgramBuilder()
    x = builder.entry((1, 3), (0, 255), "x")
    y = builder.step("clip", x, low=None, high=9, span=(0, 9))
    w = builder.constant([[1, -2], [3, 4], [5, 6]], "w")
    builder.step("matmul", y, w, span=(-18, 90))
    return engine_file(builder.program())


def test_the_layout_is_that_of_version_1() -> None:
    """Files of this version are in use, so later versions must read them."""
    file = small_file()
    assert (
        file[:64].hex(" ", 8).split()
        == [
            "895147490d0a1a0a",  # magic
            f"01000000{file[12:16].hex()}",  # version, checksum
            "c002000000000000",  # bytes
            "0100000004000000",  # any batch, tensors
            "0200000001000000",  # steps, entries
            "0100000005000000",  # exits, indices
            "0300000006000000",  # numbers, bytes of names
            "0000000000000000",
        ]
    )
    w = TENSOR.struct.unpack_from(file, 64 + 2 * TENSOR.struct.size)
    assert w == (3, 1, STORAGES.index("int8"), 1, 2, -2, 6, 6, 640, 3, 2, 0, 0, 0, 0, 0, 0)
    steps = [STEP.struct.unpack_from(file, 384 + i * STEP.struct.size) for i in range(2)]
    assert steps == [(OPS["clip"].code, 1, 1, 3), (OPS["matmul"].code, 3, 2, 0)]
    # The entry, the exit, then what each step reads; no least number, one greatest.
    assert np.frombuffer(file, "<u4", 5, 448).tolist() == [0, 3, 0, 1, 2]
    assert np.frombuffer(file, "<i8", 3, 512).tolist() == [0, 1, 9]
    assert file[576:582] == b"xt1wt3"
    assert np.frombuffer(file, "i1", 6, 640).tolist() == [1, -2, 3, 4, 5, 6]


def test_an_old_file_runs(tmp_path) -> None:
    """The file beside the native tests; it is written again the same."""
    assert EVERY_OP.read_bytes() == WHOLE
    program = every_op()
    codes = random_codes(program)
    found, wanted = Engine.open(EVERY_OP).run_codes(codes), run(program, codes)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


# -- damage -----------------------------------------------------------------------------------


def opened(content: bytes, folder: Path) -> Engine:
    file = folder / "damaged.qgi"
    file.write_bytes(content)
    return Engine.open(file, memory=MEMORY)


def with_number(content: bytes, at: int, form: str, value: int) -> bytes:
    return content[:at] + struct.pack(form, value) + content[at + struct.calcsize(form) :]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (WHOLE[:40], "too short"),
        (b"ELF" + WHOLE[3:], "not an engine file"),
        (with_number(WHOLE, 8, "<I", 2), "version 2 of the format, this build reads 1"),
        (WHOLE[:-1], f"has {len(WHOLE) - 1} bytes, it should have {len(WHOLE)}"),
        (WHOLE + b"\0", f"has {len(WHOLE) + 1} bytes"),
        (WHOLE[:999] + b"\xff" + WHOLE[1000:], "checksum"),
        (sealed(with_number(WHOLE, 24, "<I", 3)), "reserved bits that are not 0"),
        (sealed(with_number(WHOLE, 28, "<I", 1 << 31)), "too many tensors"),
        (sealed(with_number(WHOLE, 32, "<I", 1 << 31)), "ends within its steps"),
        (sealed(with_number(WHOLE, 36, "<I", 1)), "entry is missing"),
        (sealed(with_number(WHOLE, 44, "<I", 1 << 31)), "ends within its indices"),
        (sealed(WHOLE.replace(b"image", b"im\xffge")), "not valid UTF-8"),
        (sealed(with_number(WHOLE, 72, "<B", 9).replace(b"image", b"im\xffge")), "not valid UTF-8"),
    ],
)
def test_damage_is_reported(tmp_path, content, says) -> None:
    with pytest.raises(LoadError, match=says) as caught:
        opened(content, tmp_path)
    assert "damaged.qgi" in str(caught.value) and caught.value.hint


def test_a_file_that_is_not_there(tmp_path) -> None:
    for path in (tmp_path / "none.qgi", tmp_path):
        with pytest.raises(LoadError):
            Engine.open(path)


@st.composite
def damaged(draw) -> bytes:
    """The file with some bytes changed, moved or removed, and a correct checksum."""
    content = bytearray(WHOLE)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content) - 1))
        kind = draw(st.sampled_from(["flip", "word", "long", "splice", "cut"]))
        if kind == "flip":
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "word":
            value = draw(st.sampled_from([0, 1, 2, 7, 255, 1 << 31, (1 << 32) - 1]))
            content[at // 4 * 4 : at // 4 * 4 + 4] = struct.pack("<I", value)
        elif kind == "long":
            value = draw(st.sampled_from([-1, 0, 1 << 40, (1 << 63) - 1, -(1 << 63)]))
            content[at // 8 * 8 : at // 8 * 8 + 8] = struct.pack("<q", value)
        elif kind == "splice":
            length = draw(st.integers(1, 96))
            begin = draw(st.integers(0, len(content) - 1))
            content[at : at + length] = content[begin : begin + length]
        else:
            del content[at:]
            content = content or bytearray(1)
    if len(content) >= HEADER.struct.size:
        content[16:24] = struct.pack("<Q", len(content))
        return sealed(bytes(content))
    return bytes(content)


@settings(max_examples=400)
@given(damaged())
def test_damage_is_an_error_or_harmless(tmp_path_factory, content) -> None:
    try:
        engine = opened(content, tmp_path_factory.getbasetemp())
        codes = {
            name: np.full((1, *engine.tensors[name].shape[1:]), engine.tensors[name].low)
            for name in engine.entries
        }
        engine.run_codes(codes)
    except (LoadError, GraphError):
        pass
