"""Members of enumerations are their text: in files, in lookups and where plain text is given."""

import json

import pytest
import yaml

from qgraph.ir.types import OVERFLOWS, ROLES, ROUNDINGS, QuantSpec, Role, Rounding
from qgraph.quant.profile import Profile, dump_profile, load_profile


@pytest.mark.parametrize("member", [*ROUNDINGS, *OVERFLOWS, *ROLES])
def test_a_member_is_its_text(member) -> None:
    text = member.value
    assert member == text and hash(member) == hash(text) and {text: 1}[member] == 1
    assert str(member) == f"{member}" == f"{member:s}" == text and repr(member) == repr(text)
    assert json.loads(json.dumps({"a": member})) == {"a": text}
    assert type(member)(text) is member


def test_order_is_that_of_native_code() -> None:
    assert ROUNDINGS.index("half_up") == 1 and ROUNDINGS == (
        "half_even", "half_up", "half_away", "floor", "double",
    )  # fmt: skip


def test_plain_text_becomes_the_member() -> None:
    profile = Profile("p", rounding="floor")  # type: ignore[arg-type]
    assert profile.rounding is Rounding.FLOOR
    assert yaml.safe_load(dump_profile(profile))["rounding"] == "floor"
    assert load_profile("graffitist-int8").rounding is Rounding.HALF_EVEN


def test_specs_of_members_and_of_text_are_equal() -> None:
    assert QuantSpec(8, True, Role.WEIGHT) == QuantSpec(8, True, "weight")  # type: ignore[arg-type]
    assert str(QuantSpec(8, True, Role.WEIGHT)) == "s8*2^-? weight"
