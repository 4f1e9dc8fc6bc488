"""Native code of actors has the ops that are defined, and a case for each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qgraph.rl.actor.ops import ACTIVATIONS, OPS
from qgraph.rl.actor.records import HEADER as HEADER_RECORD
from qgraph.rl.actor.records import MAX_RANK, STEP, VALUE, WEIGHT

ACTOR = Path(__file__).parents[3] / "fused_ops" / "actor"
HEADER = (ACTOR / "ops.h").read_text("utf-8")
PLACES = {"run_step": "actor.cpp", "check": "parse.cpp"}


@pytest.mark.parametrize("op", OPS)
def test_every_place_has_a_case_for_the_op(op: str) -> None:
    assert f"    {op} = {OPS[op].code}," in HEADER, f"{op}: run `make golden`"
    for place, name in PLACES.items():
        assert f"case Op::{op}:" in (ACTOR / name).read_text("utf-8"), f"{op}: {name}, {place}"


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_has_its_cases(activation: str) -> None:
    assert f"    {activation} = {ACTIVATIONS.index(activation)}," in HEADER
    functions = (ACTOR / "functions.h").read_text("utf-8")
    assert functions.count(f"case Activation::{activation}:") == 2, activation


@pytest.mark.parametrize("path", sorted(ACTOR.glob("*.[ch]*")), ids=lambda path: path.name)
def test_no_switch_over_ops_has_a_catch_all(path: Path) -> None:
    """A `default` would hide a missing op from the compiler."""
    for switch in re.findall(r"switch \([^{]*\) \{.*?\n    \}", path.read_text("utf-8"), re.S):
        named = re.search(r"\b(Op|Activation|Storage|Level)::", switch)
        assert not (named and "default:" in switch), switch


def test_records_are_those_of_the_native_reader() -> None:
    """Same fields, in the same order, of the same sizes."""
    header = (ACTOR / "format.h").read_text("utf-8")
    sizes = {"char": 1, "uint32_t": 4, "float": 4, "uint64_t": 8}
    ranks = {"kMaxRank": MAX_RANK, "": 1}
    records = {"Header": HEADER_RECORD, "ValueRecord": VALUE, "WeightRecord": WEIGHT}
    for struct, record in {**records, "StepRecord": STEP}.items():
        body = header.partition(f"struct {struct} {{")[2].partition("};")[0]
        found = re.findall(r"^\s+(\w+) (\w+)(?:\[(\w+)\])?;", body, re.M)
        fields = [(name, sizes[kind] * int(ranks.get(count, count))) for kind, name, count in found]
        assert fields == [(name, record[name].itemsize) for name in record.names or ()], struct
