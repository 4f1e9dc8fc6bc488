"""Records come back from JSON as they were, and what does not fit is named by its place."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from qgraph.ir.types import Role
from qgraph.records import FLAT, OMITTED, from_json, to_json
from qgraph.verification.certificate import Certificate, Hashes


@dataclass(frozen=True)
class Noise:
    sqnr: float
    share: float | None = None


@dataclass(frozen=True)
class Exact:
    equal: bool
    count: int


@dataclass(frozen=True)
class Skipped:
    equal: bool
    why: str


@dataclass(frozen=True)
class Whole:
    name: str
    noise: Noise = field(metadata=FLAT)
    role: Role
    exponent: int | tuple[int, ...] | None
    ends: Mapping[str, tuple[float, float]]
    forms: Sequence[Exact | Skipped]
    pass_: str
    best: Noise | None = field(default=None, metadata=OMITTED)
    count: Exact | None = field(default=None, metadata=FLAT)


WHOLE = Whole(
    "a",
    Noise(3.5),
    Role.WEIGHT,
    (1, 2),
    {"x": (0.0, 1.5)},
    (Exact(True, 3), Skipped(False, "b")),
    "fold",
)
TEXT = {
    "name": "a",
    "sqnr": 3.5,
    "share": None,
    "role": "weight",
    "exponent": [1, 2],
    "ends": {"x": [0.0, 1.5]},
    "forms": [{"equal": True, "count": 3}, {"equal": False, "why": "b"}],
    "pass": "fold",
}


def test_fields_are_keys_in_order() -> None:
    assert json.dumps(to_json(WHOLE)) == json.dumps(TEXT)
    assert from_json(Whole, TEXT) == WHOLE


def test_parts_that_may_be_absent() -> None:
    both = {**TEXT, "best": {"sqnr": 1, "share": 0.5}, "equal": True, "count": 2}
    found = from_json(Whole, both)
    assert found.best == Noise(1, 0.5) and found.count == Exact(True, 2)
    assert json.dumps(to_json(found)) == json.dumps(both)


def test_json_has_no_infinity() -> None:
    text = json.dumps(to_json(Noise(math.inf, math.inf)), allow_nan=False)
    assert from_json(Noise, json.loads(text)) == Noise(math.inf, None)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": 3}, "`name` is 3, not str"),
        ({"sqnr": "x"}, "`sqnr` is 'x', not int or float"),
        ({"exponent": [1, "2"]}, "`exponent.1` is '2', not int"),
        ({"exponent": True}, "`exponent` is True"),
        ({"role": "nothing"}, "`role` is 'nothing', not one of input, index, activation, "),
        ({"ends": {"x": [1.0]}}, "`ends.x` has 1 entries, not 2"),
        ({"ends": []}, "`ends` is not an object"),
        ({"forms": [{"equal": True}]}, "`forms.0.why` is missing"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("[", r"\[")):
        from_json(Whole, {**TEXT, **changes})


@pytest.mark.parametrize("key", TEXT)
def test_missing_keys_are_named(key: str) -> None:
    rest = {name: value for name, value in TEXT.items() if name != key}
    if key == "share":
        assert from_json(Whole, rest) == WHOLE
        return
    with pytest.raises(ValueError, match=f"`{key}` is missing"):
        from_json(Whole, rest)


def test_what_json_cannot_hold() -> None:
    with pytest.raises(TypeError, match="JSON does not support a set"):
        to_json({"x": {1}})


def test_facts_and_certificates_are_read_by_the_keys_of_their_json_too() -> None:
    found = Hashes("a", "b", None, "d", "e")
    certificate = Certificate(1, {}, found, "int8", True, {"samples": 4}, {}, [], [])
    assert certificate["cases"] == {"samples": 4} and certificate["hashes"] == to_json(found)
    assert dict(certificate) == to_json(certificate) and "equal" in certificate
    with pytest.raises(KeyError):
        certificate["nothing"]
