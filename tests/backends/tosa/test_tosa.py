"""TOSA files in the TOSA reference model: every code equals the integer reference."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.backends.tosa import requantize as tosa_requantize
from qgraph.backends.tosa import tosa_form
from qgraph.backends.tosa.emission import TosaEmission
from qgraph.backends.tosa.lowering import LOWERINGS
from qgraph.backends.tosa.tosa_file import TosaRounding
from qgraph.backends.tosa.tosa_form import FILE, TosaForm, written
from qgraph.errors import ExactnessError
from qgraph.exports import export
from qgraph.ir.types import ROUNDINGS
from qgraph.stored import load_network
from qgraph.verification.verify import verify
from tests.helpers.forms import assert_form, carried, compare_form, needs_tool, network_of
from tests.helpers.forms import random_codes as codes_of
from tests.helpers.generators.programs import programs
from tests.helpers.program_builder import ProgramBuilder, requantized
from tests.helpers.quantized import network_programs

pytestmark = needs_tool("tosa")
FORM = TosaForm()


def test_every_code_of_digits(digits_tosa: Path) -> None:
    found = verify(digits_tosa, forms=["tosa"])
    tally = found.compared.tallies["tosa"]
    assert found.equal and tally.wrong == 0 and not found.refused
    assert tally.tensors >= {*load_network(digits_tosa).program.exits}
    assert len(tally.tensors) > 20 and tally.elements > 10_000


def test_a_wrong_rounding_is_found(digits_tosa: Path, monkeypatch) -> None:
    double = TosaRounding.DOUBLE_ROUND
    both = SimpleNamespace(SINGLE_ROUND=double, DOUBLE_ROUND=double)
    monkeypatch.setattr(tosa_requantize, "TosaRounding", both)
    assert not verify(digits_tosa, forms=["tosa"]).equal


def test_biases_and_limits_need_no_ops_of_their_own(digits_tosa: Path) -> None:
    """One sum of two tensors and one average pool need arithmetic beside the layers."""
    model = TosaEmission(load_network(digits_tosa).program, LOWERINGS).emit()
    counts = Counter(op.op.name for op in model.operators)
    assert counts["CONV2D"] + counts["DEPTHWISE_CONV2D"] == 12
    assert (counts["ADD"], counts["MUL"], counts["MAXIMUM"], counts["MINIMUM"]) == (1, 1, 0, 0)


def test_a_file_that_is_not_valid_is_refused(digits_tosa: Path, tmp_path: Path) -> None:
    network = load_network(digits_tosa)
    export(network, "tosa", tmp_path / "tosa")
    data = (tmp_path / "tosa" / FILE).read_bytes()
    (tmp_path / "tosa" / FILE).write_bytes(data[:-64])
    with pytest.raises(ExactnessError, match=r"refuses the file|reference model failed"):
        FORM.runner(network, tmp_path / "tosa")(codes_of(network.program))


@settings(max_examples=25, deadline=None)
@given(programs(), st.integers(0, 1000))
def test_random_programs(program, seed: int) -> None:
    compare_form(FORM, network_of(carried(FORM, program)), [codes_of(program, seed)])


@settings(max_examples=15, deadline=None)
@given(network_programs(), st.integers(0, 1000))
def test_random_networks(program, seed: int) -> None:
    compare_form(FORM, network_of(carried(FORM, program)), [codes_of(program, seed)])


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("span", [(-128, 127), (0, 255), (-40000, 40000)])
def test_every_rounding_of_every_code(rounding: str, span: tuple[int, int]) -> None:
    """Shifts to the left and to the right, up to past all bits of the codes."""
    shifts = (-3, 0, 1, 2, 3, 5, 8, 16, 19, 40)
    codes = np.arange(span[0], span[1] + 1, max(1, (span[1] - span[0]) // 5000))
    builder = ProgramBuilder()
    rows = builder.entry((1, len(shifts)), span, "x")
    for to in ((-128, 127), (0, 255), (-8, 7), (-(2**15), 2**15 - 1)):
        builder.step("requantize", rows, **requantized(shifts, to, rounding))
    program = builder.program()
    given_codes = {"x": np.repeat(codes[:, None], len(shifts), 1)}
    made = written(program, len(codes), inner=True)
    assert len(made.ports.outputs) == 4
    compare_form(_OneCopy(), network_of(program), [given_codes])


class _OneCopy(TosaForm):
    """Runs only the copy for all samples, because there are thousands of them."""

    def runner(self, network, folder: Path):
        def run(entries):
            copy = written(network.program, len(entries["x"]), inner=True)
            (folder / "copy.tosa").write_bytes(copy.data)
            return tosa_form.run_file(folder / "copy.tosa", copy.ports, entries)

        return run


@pytest.mark.parametrize(("count", "span"), [(1, (0, 255)), (7, (-128, 127)), (300, (-128, 127))])
def test_layer_norms_and_softmaxes(count: int, span: tuple[int, int]) -> None:
    """Ends of the range in a row, and random codes."""
    builder = ProgramBuilder()
    x = builder.entry((1, 4, count), span, "x")
    guard = 25 - (count * max(-span[0], span[1])).bit_length()
    for epsilon, above in ((0, -guard), (1, 0), (1 << 40, 3)):
        builder.step("standardize", x, guard=guard, epsilon=epsilon, shift=guard + above)
    table = np.rint(np.ldexp(np.exp(-np.arange(200) / 20), 15)).astype(int)
    for bits in (0, 7, 15):
        builder.step("softmax", x, builder.constant(table), bits=bits, high=(1 << bits) - 1)
    assert_form(FORM, builder.program())


def test_a_layer_norm_with_too_many_results_is_refused_by_name() -> None:
    builder = ProgramBuilder()
    builder.step("standardize", builder.entry((1, 70)), guard=7, epsilon=9, shift=20, name="norm")
    assert "norm: needs numbers up to 68,048" in str(FORM.refusal(network_of(builder.program())))


def test_wide_operands_are_refused_by_name() -> None:
    builder = ProgramBuilder()
    wide = builder.entry((1, 3), (-(2**15), 2**15 - 1), "wide")
    builder.step("matmul", wide, builder.constant([[1, 2], [3, 4], [5, 6]]), name="dense")
    reason = str(FORM.refusal(network_of(builder.program())))
    assert "dense: its input `wide` has codes -32,768..32,767" in reason


@pytest.mark.parametrize("size", [5, 6, 7])
@pytest.mark.parametrize("op", ["conv2d", "max_pool"])
def test_windows_that_leave_rows_out(op: str, size: int) -> None:
    builder = ProgramBuilder()
    image = builder.entry((1, size, size, 2), name="x")
    window = {"strides": (3, 2), "pads": ((1, 1), (0, 1))}
    if op == "conv2d":
        filters = builder.constant(np.arange(16).reshape(2, 2, 2, 2) - 8)
        builder.step(op, image, filters, **window)
    else:
        builder.step(op, image, ksize=(2, 2), **window)
    assert_form(FORM, builder.program())
