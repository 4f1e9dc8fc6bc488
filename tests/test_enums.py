"""Members of enumerations are their text: in files, in lookups and where plain text is given."""

import json

import pytest
import yaml

from qgraph.backends.tflite.arithmetic import ARITHMETICS
from qgraph.choices import CalibrationMethod, Effort, ExportFormat, LossKind, Mode, chosen, optional
from qgraph.compiler import quantize
from qgraph.errors import UsageError
from qgraph.exports import FORMS, form
from qgraph.ir.types import OVERFLOWS, ROLES, ROUNDINGS, QuantSpec, Role, Rounding
from qgraph.quant.calibrate import Calibration
from qgraph.quant.plan import Plan, parse_plan
from qgraph.quant.profile import Profile, dump_profile, load_profile
from qgraph.quant.thresholds import METHODS
from qgraph.records import from_json, to_json
from qgraph.train.options import Options


@pytest.mark.parametrize("member", [*ROUNDINGS, *OVERFLOWS, *ROLES, *Mode, *Effort, *LossKind])
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


def test_a_choice_is_read_from_its_text() -> None:
    assert chosen(Mode, "retrain", "mode") is Mode.RETRAIN
    assert optional(Effort, None, "effort") is None
    assert Calibration("mse").method is CalibrationMethod.MSE  # type: ignore[arg-type]
    plan = parse_plan("method=mse,weights=3sd")
    assert plan.method is CalibrationMethod.MSE and plan == Plan(method="mse", weights="3sd")  # type: ignore[arg-type]
    assert plan.spec() == "method=mse,weights=3sd"
    options = Options(learn="weights", loss="teacher")  # type: ignore[arg-type]
    assert options.loss is LossKind.TEACHER and from_json(Options, to_json(options)) == options


def test_an_unknown_choice_lists_the_known_ones() -> None:
    for call, message in (
        (lambda: quantize("m.pb", mode="x"), "unknown mode `x`; choose static or retrain"),
        (
            lambda: quantize("m.pb", effort="x"),
            "unknown effort `x`; choose plain, fast, default or thorough",
        ),
        (lambda: quantize("m.pb", method="x"), "unknown calibration method `x`; choose kl_j, max"),
        (lambda: form("x"), "unknown format `x`; choose onnx-qdq, onnx-integer"),
        (lambda: Options(loss="x"), "unknown loss `x`; choose labels, teacher, mse or blocks"),
        (
            lambda: Options(learn="x"),
            "unknown part to learn `x`; choose all, weights",
        ),
    ):
        with pytest.raises(UsageError, match=f"^{message}"):
            call()


def test_every_choice_has_what_carries_it() -> None:
    forms = [f"no entry in FORMS of qgraph/exports.py: {f}" for f in ExportFormat if f not in FORMS]
    found = {*METHODS, CalibrationMethod.OUTPUT}
    methods = [f"no entry in METHODS: {m}" for m in CalibrationMethod if m not in found]
    assert not forms + methods


def test_formats_name_the_profiles_that_are_made_for_them() -> None:
    named = [name for entry in FORMS.values() for name in entry.profiles]
    assert [load_profile(name).name for name in named] == named
    assert FORMS[ExportFormat.TFLITE].profiles == tuple(one.name for one in ARITHMETICS)
