"""`qgraph profiles`: the built-in profiles, each key explained, and a custom file."""

import json

import pytest

from qgraph.quant.keys import leaves
from qgraph.quant.profile import Profile, builtin_profiles, load_profile
from tests.helpers.cli import run

PROFILE = 7


def test_all_profiles_and_keys_are_listed():
    done = run("profiles")
    assert done.code == 0, done.err
    for name in builtin_profiles():
        assert name in done.out and load_profile(name).description in done.out
    for found in leaves(Profile):
        assert found.path in done.out and found.key.meaning in done.out
    assert "equalize=no|noise|measured|weights|biases" in done.out


def test_for_machines():
    found = json.loads(run("profiles", "--json").out)
    assert [p["name"] for p in found["profiles"]] == list(builtin_profiles())
    differs = {p["name"]: p["differs"] for p in found["profiles"]}
    assert differs["graffitist-int8"] == {}
    assert differs["int32-bias"] == {"bits.bias": 32, "bits.internal": None}
    weight = next(k for k in found["keys"] if k["key"] == "bits.weight")
    assert (weight["type"], weight["range"], weight["default"]) == ("whole number", [2, 16], 8)
    assert {"weight": weight}["weight"]["meaning"] == "weights of layers"
    assert {s["key"] for s in found["plan"]} >= {"equalize", "scale-inputs"}


def test_one_profile_with_what_differs_from_the_default():
    lines = run("profiles", "graffitist-int4").out.splitlines()
    assert lines[0].startswith("profile graffitist-int4: 4-bit weights")
    assert [line.split()[:4] for line in lines if line.startswith("* b")] == [
        ["*", "bits.weight", "4", "8"]
    ]
    assert lines[-1] == "* 1 key differs from graffitist-int8"
    assert "no key differs" in run("profiles", "graffitist-int8").out


def test_a_file_of_ones_own(tmp_path):
    (tmp_path / "dsp.yaml").write_text("rounding: floor\nbits: {internal: null, bias: 24}")
    done = run("profiles", tmp_path / "dsp.yaml")
    assert done.code == 0 and "profile dsp\n" in done.out
    assert "* 3 keys differ from graffitist-int8" in done.out
    found = json.loads(run("profiles", tmp_path / "dsp.yaml", "--json").out)
    assert found["name"] == "dsp" and "null" in str(found["keys"])
    assert found["differs"] == {"bits.bias": 24, "bits.internal": None, "rounding.layers": "floor"}
    values = {k["key"]: k["value"] for k in found["keys"]}
    assert values["bits.bias"] == 24 and values["bits.weight"] == 8


@pytest.mark.parametrize(
    ("content", "message"),
    [("rounding: up", "`rounding` must be one of"), (None, "no such profile")],
)
def test_what_is_wrong_is_named(tmp_path, content, message):
    path = tmp_path / "wrong.yaml"
    if content:
        path.write_text(content)
    done = run("profiles", path)
    assert done.code == PROFILE and done.out == "" and message in done.err
