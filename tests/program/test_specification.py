"""docs/integer_program.md is complete: what was written from it alone computes what qgraph does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qgraph.backends.engine import engine_file
from qgraph.backends.engine.file import sealed
from qgraph.backends.engine.records import HEADER, STEP, TENSOR
from qgraph.compiler import quantize as quantize_network
from qgraph.frontends import load
from qgraph.ir.types import OVERFLOWS, ROUNDINGS, QuantSpec
from qgraph.numerics import dequantize, quantize
from qgraph.ops.attributes import declarations
from qgraph.program import Program, lower, run
from qgraph.program.ops import OPS, Operand
from qgraph.quant.profile import profile_keys
from tests.helpers import spec_file, spec_interpreter, spec_rules
from tests.helpers.forms import random_codes
from tests.helpers.generators.programs import programs
from tests.helpers.program_builder import every_op, without_a_step

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integer_program.md").read_text("utf-8")
ALONE = ("spec_file", "spec_interpreter", "spec_rules")
TABLES = {
    "numbers of spec_file.py": {*spec_file.NUMBERS, *spec_file.NEED_SHAPES},
    "spec_interpreter.COMPUTE": spec_interpreter.COMPUTE,
    "spec_rules.SHAPES": spec_rules.SHAPES,
    "spec_rules.RANGES": spec_rules.RANGES,
    "spec_rules.SEPARATE": spec_rules.SEPARATE,
}


# -- nothing is missing ---------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_the_page_has_an_entry_for_the_op(op: str) -> None:
    entry = PAGE.partition(f"\n### {op}\n")[2].partition("\n### ")[0]
    assert entry, f"{op}: no entry in docs/integer_program.md"
    assert f"Number: {OPS[op].code}. " in entry
    for declared in declarations(OPS[op].attributes):
        assert f"| `{declared.name}` |" in entry, f"{op}: attribute `{declared.name}`"


@pytest.mark.parametrize("op", OPS)
def test_the_interpreter_has_the_op(op: str) -> None:
    assert not [f"{op}: no case in {name}" for name, table in TABLES.items() if op not in table]
    assert spec_file.OPS.index(op) == OPS[op].code


def test_the_page_and_the_interpreter_have_no_other_ops() -> None:
    for name, table in TABLES.items():
        assert set(table) == set(OPS), name
    entries = PAGE.partition("entries of ops -->")[2].partition("end of table")[0]
    assert re.findall(r"^### (\w+)$", entries, re.M) == list(OPS)


def test_the_page_names_every_rounding_and_overflow() -> None:
    for name in ROUNDINGS:
        assert f"\n| {name} |" in PAGE, f"{name}: not in the table of roundings"
        assert f"\n    {name}: " in PAGE or f"\n        {name}: " in PAGE, f"{name}: requantize"
    for name in OVERFLOWS:
        assert f"\n    {name}: " in PAGE, name


def test_the_page_describes_every_key_of_a_profile() -> None:
    section = PAGE.partition("\n## Profiles\n")[2].partition("\n## ")[0]
    for key in profile_keys():
        path = key.path.partition("[")[0]  # of all overrides
        named = f"`{path}`" in section or f"`{path.partition('.')[0]}.*`" in section
        assert named or path in ("name", "description"), key.path


@pytest.mark.parametrize("module", ALONE)
def test_the_interpreter_stands_alone(module: str) -> None:
    tree = ast.parse((ROOT / "tests" / "helpers" / f"{module}.py").read_text("utf-8"))
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not [n for n in names if n.startswith("qgraph")], names
        assert not [n for n in names if n.startswith("tests") and n.split(".")[-1] not in ALONE]


def test_records_are_those_of_the_native_reader() -> None:
    """Same fields, in the same order, of the same sizes."""
    header = (ROOT / "fused_ops" / "engine" / "format.h").read_text("utf-8")
    sizes = {"char": 1, "uint8_t": 1, "uint32_t": 4, "uint64_t": 8, "int64_t": 8}
    for struct, record in (("Header", HEADER), ("TensorRecord", TENSOR), ("StepRecord", STEP)):
        body = header.partition(f"struct {struct} {{")[2].partition("};")[0]
        found = re.findall(r"^\s+(\w+) (\w+)(?:\[(\d+)\])?;", body, re.M)
        fields = [(name, sizes[kind] * int(count or 1)) for kind, name, count in found]
        assert fields == [(field.name, field.size) for field in record.fields], struct


# -- random programs ------------------------------------------------------------------------------


def differences(program: Program, codes: dict) -> list[str]:
    """Tensors that differ between the reference and the interpreter, by way of the file."""
    file = spec_file.parse(engine_file(program))
    spec_interpreter.check_order(file)
    spec_rules.check(file)
    assert file.exits == program.exits
    every = [step.output for step in program.steps]
    wanted = run(program, codes, every)
    found = spec_interpreter.run(file, codes, every)
    return [name for name in every if not np.array_equal(found[name], wanted[name])]


@settings(max_examples=60)
@given(programs(), st.integers(0, 1 << 30), st.sampled_from([1, 1, 2, 4]))
def test_every_tensor_is_what_the_reference_makes(program, seed, samples) -> None:
    assert not differences(program, random_codes(program, seed, samples))


@pytest.mark.parametrize("samples", [1, 3])
def test_every_op(samples: int) -> None:
    program = every_op()
    assert not without_a_step()
    assert not differences(program, random_codes(program, samples, samples))


@pytest.mark.parametrize("op", OPS)
def test_a_mistake_in_any_op_is_seen(op: str, monkeypatch) -> None:
    """The mistake is visible in codes, without the ranges of tensors."""
    program, right = every_op(), spec_interpreter.COMPUTE[op]
    monkeypatch.setitem(spec_interpreter.COMPUTE, op, lambda a, *xs: right(a, *xs) ^ 1)
    monkeypatch.setattr(spec_interpreter, "require", lambda condition, what: None)
    made = {step.output for step in program.steps if step.op == op}
    assert made, without_a_step()
    assert made & set(differences(program, random_codes(program, samples=2)))


def attributes(step) -> dict:
    return dict(step.attrs.items())


@settings(max_examples=40)
@given(programs())
def test_shapes_ranges_and_samples_are_those_of_the_definitions(program) -> None:
    _check_rules(program)


def test_shapes_ranges_and_samples_of_every_op() -> None:
    _check_rules(every_op())


def known_of(x: Operand) -> spec_rules.Known:
    codes = None if x.codes is None else x.codes.astype(np.int64)
    return spec_rules.Known(x.shape, x.low, x.high, x.magnitude, codes)


def _check_rules(program: Program) -> None:
    for step in program.steps:
        op, attrs, operands = step.definition, attributes(step), program.operands(step)
        known = [known_of(operand) for operand in operands]
        shapes = [x.shape for x in operands]
        made = op.shape(step.attrs, shapes)
        assert tuple(spec_rules.SHAPES[step.op](attrs, *shapes)) == made, step
        reach = op.reach(step.attrs, operands)
        found = spec_rules.RANGES[step.op](attrs, *known)
        assert found == (reach.low, reach.high, reach.magnitude), step
        separate = spec_rules.SEPARATE[step.op](attrs, made, *known)
        assert separate == op.separate(step.attrs, operands, made), step


def test_attributes_in_the_file_are_those_of_the_program() -> None:
    program = every_op()
    for step, found in zip(program.steps, spec_file.parse(engine_file(program)).steps, strict=True):
        x = np.empty(program.tensors[step.inputs[0]].shape)
        wanted = attributes(step)
        if step.op == "slice":  # other words for the same part
            assert np.shape(x[step.attrs.parts]) == np.shape(
                x[
                    tuple(
                        map(slice, found.attrs["begin"], found.attrs["end"], found.attrs["strides"])
                    )
                ]
            )
            continue
        assert found.attrs == wanted, step


def test_a_real_network_from_numbers_to_numbers() -> None:
    """examples/digits: the codes of images, every tensor, and the values of the exits."""
    graph = load(ROOT / "examples" / "digits" / "digits.pb")
    images = np.random.default_rng(0).random((5, 8, 8, 1), np.float32)
    result = quantize_network(graph, images, profile="graffitist-int8", plan="method=max")
    program = lower(result.graph)
    (entry,), (exit_,) = program.entries, program.exits
    spec = entry.spec
    codes = spec_interpreter.to_codes(
        images, spec.bits, spec.signed, spec.exponent, spec.rounding, spec.overflow
    )
    assert not differences(program, {entry.tensor: codes})
    file = spec_file.parse(engine_file(program))
    found = spec_interpreter.run(file, {entry.tensor: codes})[exit_]
    wanted = result.reference().run({graph.inputs[0]: images}, {exit_})[exit_]
    exponent = program.tensors[exit_].exponent
    assert np.array_equal(spec_interpreter.to_numbers(found, exponent), dequantize(wanted))


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("overflow", OVERFLOWS)
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20),
    st.integers(2, 16),
    st.booleans(),
    st.integers(-8, 12),
)
def test_numbers_become_codes_and_codes_numbers(rounding, overflow, x, bits, signed, exponent):
    ties = [*x, *(np.ldexp(n + 0.5, -exponent) for n in range(-4, 5))]
    numbers = np.asarray(ties, np.float32)
    spec = QuantSpec(bits, signed, "input", exponent, rounding, overflow)
    wanted = quantize(numbers, spec)
    found = spec_interpreter.to_codes(numbers, bits, signed, exponent, rounding, overflow)
    assert np.array_equal(found, wanted.codes)
    assert np.array_equal(spec_interpreter.to_numbers(found, exponent), dequantize(wanted))


# -- files ----------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 30), st.integers(0, 255))
def test_a_damaged_file_is_refused(place: int, value: int) -> None:
    file = bytearray(engine_file(every_op()))
    place %= len(file)
    if file[place] != value:
        file[place] = value
        with pytest.raises(spec_file.Refused):
            spec_file.parse(bytes(file))


@pytest.mark.parametrize("at", [8, 24, 56, 64 + 11])
def test_numbers_without_a_meaning_are_refused(at: int) -> None:
    file = bytearray(engine_file(every_op()))
    file[at] = 7
    with pytest.raises(spec_file.Refused):
        spec_file.parse(sealed(bytes(file)))
