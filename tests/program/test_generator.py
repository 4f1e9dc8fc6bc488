"""The generator of programs draws every op, every attribute and every type of codes."""

from __future__ import annotations

from collections import defaultdict

import pytest

from qgraph.backends.engine.records import STORAGES
from qgraph.ops.attributes import declarations
from qgraph.program import Program
from qgraph.program.ops import OPS, OpClass
from tests.helpers.generators.grower import derivable
from tests.helpers.generators.program_ops import RECIPES
from tests.helpers.generators.programs import random_program

SEEDS = 400
FEWEST = 3  # different values of an attribute that has no choices


@pytest.fixture(scope="module")
def drawn() -> list[Program]:
    return [random_program(seed) for seed in range(SEEDS)]


@pytest.mark.parametrize("op", OPS)
def test_every_op_can_be_drawn(op: str) -> None:
    underived = [d.name for d in declarations(OPS[op].attributes) if not derivable(d)]
    simple = OPS[op].family in (OpClass.UNARY, OpClass.BINARY) and len(OPS[op].operands) < 3
    assert op in RECIPES or (simple and not underived), (
        f"{op}: no recipe in tests/helpers/generators/program_ops.py; "
        f"attributes that are not derived: {underived or 'none'}"
    )


def test_no_recipe_is_left_over() -> None:
    assert RECIPES.keys() <= OPS.keys()


@pytest.mark.parametrize("op", OPS)
def test_every_op_and_every_value_is_drawn(op: str, drawn: list[Program]) -> None:
    steps = [step for program in drawn for step in program.steps if step.op == op]
    assert len(steps) > SEEDS // 20
    values = defaultdict(set)
    for step in steps:
        for name, value in step.attrs.items():
            values[name].add(value)
    for declared in declarations(OPS[op].attributes):
        found, choices = values[declared.name], set(declared.choices)
        assert choices <= found, f"{op}: {declared.name} is never {choices - found}"
        assert choices or len(found) >= FEWEST, f"{op}: {declared.name} is only ever {found}"


def test_codes_have_every_type(drawn: list[Program]) -> None:
    found = {t.storage for program in drawn for t in program.tensors.values()}
    assert found >= {*STORAGES} - {"uint64"}


def test_a_seed_gives_the_same_program() -> None:
    assert str(random_program(5)) == str(random_program(5)) != str(random_program(6))
