"""Reading a block: a damaged one is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph import kernels
from qgraph.errors import LoadError, QGraphError, UsageError
from qgraph.rl.actor import Actor, Packer, read_block
from qgraph.rl.actor.block import checksum_of, plain_checksum
from qgraph.rl.actor.packer import pack_plain
from qgraph.rl.actor.records import HEADER, STEP, VALUE, WEIGHT
from tests.helpers.actors import everything, mlp, random_weights
from tests.helpers.golden import every_block

EVERY_OP = Path(__file__).parents[3] / "fused_ops" / "tests" / "every_op.qga"


WHOLE = np.frombuffer(every_block(), np.uint8)


def repaired(block):
    """The same block, its size and its checksum as they should be."""
    block[24:32].view("<u8")[0] = len(block)
    block[16:24].view("<u8")[0] = checksum_of(block)
    return block


def test_a_block_of_format_1_is_written_again_the_same():
    """fused_ops/tests has one, for the tests of the native code: `make golden` writes it."""
    assert EVERY_OP.read_bytes() == WHOLE.tobytes()


def test_records_are_those_of_format_1():
    block = Packer(mlp(3, 2), 8).pack({"w0": np.eye(3, 2), "b0": np.ones(2)}, version=258)
    assert block[:8].tobytes() == b"\x89QGA\r\n\x1a\n"
    assert block[8:16].view("<u4").tolist() == [1, 8]
    assert block[24:40].view("<u8").tolist() == [len(block), 258]
    assert block[40:64].view("<u4").tolist() == [2, 2, 1, 2, 1, 17]
    assert (HEADER.itemsize, VALUE.itemsize, WEIGHT.itemsize, STEP.itemsize) == (64, 32, 64, 64)
    assert block[384:401].tobytes() == b"observationy0w0b0"
    # 127 on the diagonal, four values of each of sixteen channels; scales; sums; the bias.
    assert block[448:456].tolist() == [127, 0, 0, 0, 0, 127, 0, 0]
    assert block[512:524].view("<f4") == pytest.approx([1 / 127, 1 / 127, 0])
    assert block[576:588].view("<i4").tolist() == [127, 127, 0]
    assert block[640:652].view("<f4").tolist() == [1, 1, 0]


def test_both_checksums_are_the_same():
    assert checksum_of(WHOLE) == plain_checksum(WHOLE) == int(WHOLE[16:24].view("<u8")[0])


@pytest.mark.parametrize("at", [0, 8, 12, 20, 24, 40, 70, 300, len(WHOLE) // 2, len(WHOLE) - 1])
def test_a_byte_that_changed_is_seen(at):
    block = WHOLE.copy()
    block[at] ^= 4
    with pytest.raises(LoadError):
        read_block(block)


def test_blocks_that_are_cut_or_of_something_else_are_refused():
    for size in (0, 10, 64, len(WHOLE) - 64, len(WHOLE) - 1):
        with pytest.raises(LoadError):
            read_block(WHOLE[:size])
    with pytest.raises(LoadError, match="not an actor block"):
        read_block(bytes(len(WHOLE)))
    with pytest.raises(LoadError, match=r"a block is uint8 \[size\], not float32 \[4, 4\]"):
        read_block(np.zeros((4, 4), np.float32))
    other = WHOLE.copy()
    other[8] = 2
    with pytest.raises(LoadError, match="format 2, not 1"):
        read_block(repaired(other))


def mutated(data):
    block = WHOLE.copy()
    tables = data.draw(st.booleans())
    end = (len(read_block(WHOLE).layout.tables) if tables else len(block)) // 4
    words = block.view("<u4")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, end - 1))
        odd = st.sampled_from([0, 1, 2, 3, 64, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
        near = int(words[at]) + data.draw(st.integers(-2, 2))
        bit = int(words[at]) ^ (1 << data.draw(st.integers(0, 31)))
        words[at] = data.draw(st.one_of(odd, st.sampled_from([near % (1 << 32), bit])))
    return repaired(block)


@settings(max_examples=400)
@given(st.data())
def test_damaged_blocks_are_refused_or_run(data):
    block = mutated(data)
    try:
        actor = Actor(block)
        found = actor.run(np.ones((2, *actor.shape), np.float32))
    except QGraphError:
        return
    assert list(found) == list(actor.outputs)


@settings(max_examples=200)
@given(st.data())
def test_an_actor_continues_when_it_gets_a_damaged_block(data):
    actor = Actor(WHOLE)
    x = np.ones((1, *actor.shape), np.float32)
    expected = actor(x)
    try:
        actor.switch(mutated(data))
    except LoadError:
        assert actor.version == 5
        np.testing.assert_array_equal(actor(x), expected)
    actor(x)


@pytest.mark.skipif(kernels.native_actor() is None, reason="the native extension is not built")
def test_native_code_refuses_on_its_own():
    """Native code checks blocks itself, in case Python has not checked them."""
    native = kernels.native_actor()
    for at in range(64, len(read_block(WHOLE).layout.tables), 4):
        block = WHOLE.copy()
        block[at : at + 4].view("<u4")[0] = 0x7FFFFFF0
        try:
            native.Actor(block, 0)
        except native.Refusal:
            continue
        except UsageError:
            raise AssertionError("an error of another kind") from None


def write() -> None:
    EVERY_OP.write_bytes(WHOLE.tobytes())


def test_plain_packing_makes_the_same_block():
    program = everything()
    packer = Packer(program, 8, first_bits=16, last_bits=4)
    block = packer.allocate()
    tables = np.frombuffer(packer.layout.tables, np.uint8)
    block[: len(tables)] = tables
    block[32] = 5
    pack_plain(packer, random_weights(program), block)
    assert (block == WHOLE).all()
