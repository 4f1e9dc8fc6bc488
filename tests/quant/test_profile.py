"""Profiles: the built-in ones load; every wrong key is named."""

from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from qgraph.errors import ProfileError
from qgraph.ir.types import OVERFLOWS, ROUNDINGS
from qgraph.quant.profile import (
    Bits,
    Override,
    Profile,
    builtin_profiles,
    dump_profile,
    load_profile,
    parse_profile,
)


@pytest.mark.parametrize("name", builtin_profiles())
def test_built_in(name):
    profile = load_profile(name)
    assert profile.name == name and profile.description


def test_what_the_built_in_profiles_say():
    assert {
        "esp32-p4", "esp32-s3", "graffitist-int4", "graffitist-int8", "int32-bias", "policy-int4",
        "policy-int8", "ryzen-ai", "tosa",
    } <= {*builtin_profiles()}  # fmt: skip
    int8 = load_profile("graffitist-int8")
    assert int8 == Profile("graffitist-int8", int8.description)
    int4 = load_profile("graffitist-int4").bits
    assert (int4.weight, int4.weight_ends, int4.activation) == (4, 8, 8)
    assert load_profile("int32-bias").bits == Bits(bias=32, internal=None)
    rim = {"input": 16, "output": 16, "table": 16, "norm": 16}
    assert load_profile("policy-int8").bits == Bits(**rim)
    assert load_profile("policy-int4").bits == Bits(weight=4, **rim)


def test_profiles_of_targets_without_an_inner_stage():
    narrow = Bits(bias=32, internal=None, scale=8, slope=8)
    tosa, p4, s3 = map(load_profile, ("tosa", "esp32-p4", "esp32-s3"))
    ryzen = load_profile("ryzen-ai")
    assert (tosa.bits, tosa.rounding, tosa.signed_activations) == (narrow, "half_up", False)
    assert (p4.bits, p4.rounding, p4.signed_activations) == (narrow, "half_even", True)
    assert (ryzen.rounding, ryzen.signed_activations) == ("half_even", True)
    assert ryzen.bits == replace(narrow, constant=7)
    assert (s3.rounding, s3.signed_activations, s3.accumulator_bits) == ("half_up", True, 20)
    assert s3.bits == replace(narrow, bias=20) and not s3.accumulator_wraps


def test_everything_that_a_file_may_say(tmp_path):
    text = """
        description: a DSP
        bits: {input: 7, activation: 6, weight: 5, weight_ends: 4, bias: 31, internal: null,
               scale: 12, constant: 9, slope: 10}
        per_channel: true
        rounding: half_away
        overflow: wrap
        accumulator: {bits: 24, overflow: wrap}
        shift: [0, 31]
        overrides: [{match: "head/*", weight: 8}, {match: "*", activation: 4}]
    """
    path = tmp_path / "my-dsp.yaml"
    path.write_text(text)
    profile = load_profile(path)
    assert profile == parse_profile(yaml.safe_load(text), "my-dsp")
    assert profile.name == "my-dsp" and profile.bits == Bits(7, 6, 5, 4, 31, None, 12, 9, 10)
    assert (profile.accumulator_bits, profile.accumulator_wraps) == (24, True)
    assert (profile.per_channel, profile.rounding, profile.overflow) == (True, "half_away", "wrap")
    assert profile.shift == (0, 31)
    assert profile.override("head/conv").weight == 8
    assert profile.override("head/conv").activation is None  # the first match counts
    assert profile.override("body").activation == 4


def test_rounding_is_one_word_or_a_mapping_of_kinds():
    profile = parse_profile({"rounding": {"additions": "half_up", "inputs": None}}, "p")
    assert profile == Profile("p", rounding_additions="half_up")
    assert parse_profile({"rounding": {"layers": "floor"}}, "p") == parse_profile(
        {"rounding": "floor"}, "p"
    )
    assert yaml.safe_load(dump_profile(Profile("p", rounding="floor")))["rounding"] == "floor"
    assert yaml.safe_load(dump_profile(profile))["rounding"] == {
        "layers": "half_even", "additions": "half_up", "products": None, "constants": None,
        "inputs": None,
    }  # fmt: skip


def test_an_empty_profile_is_the_default():
    assert parse_profile(None, "p") == parse_profile({}, "p") == Profile("p")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1, 2]", "the profile must be a mapping, found [1, 2]"),
        ("bit: {}", "unknown key `bit`"),
        ("7: {}", "unknown key `7`"),
        ("name: 7", "`name` must be text, found 7"),
        ("description: [a]", "`description` must be text"),
        ("bits: 8", "bits must be a mapping, found 8"),
        ("bits: {weights: 8}", "unknown key `bits.weights`"),
        *[
            (f"bits: {{{key}: {value}}}", f"`bits.{key}` must be a whole number from 2 to 16")
            for key in ("input", "activation", "weight", "weight_ends", "scale",
                        "constant", "slope")
            for value in (1, 17, 8.0, "true", "eight", "[8]")
        ],
        ("bits: {bias: 33}", "`bits.bias` must be a whole number from 2 to 32"),
        ("bits: {internal: 33}", "`bits.internal` must be a whole number from 2 to 32"),
        ("bits: {weight: null}", "`bits.weight` must be a whole number"),
        ("per_channel: 1", "`per_channel` must be true or false, found 1"),
        ("rounding: up", "`rounding` must be one of half_even, half_up, half_away, floor, double"),
        ("rounding: [floor]", "`rounding` must be one of"),
        ("rounding: {layers: up}", "`rounding.layers` must be one of"),
        ("rounding: {layer: floor}", "unknown key `rounding.layer`"),
        ("rounding: {inputs: 3}", "`rounding.inputs` must be one of"),
        ("overflow: clip", "`overflow` must be one of saturate, wrap"),
        ("accumulator: 32", "accumulator must be a mapping"),
        ("accumulator: {width: 32}", "unknown key `accumulator.width`"),
        ("accumulator: {bits: 7}", "`accumulator.bits` must be a whole number from 8 to 64"),
        ("accumulator: {overflow: saturate}", "`accumulator.overflow` must be one of error, wrap"),
        ("shift: 8", "`shift` must be two numbers"),
        ("shift: [0]", "`shift` must be two numbers"),
        ("shift: [0, 99]", "`shift` must be a whole number from -62 to 62"),
        ("shift: [5, 4]", "`shift` must be [least, most] in ascending order"),
        ("overrides: {match: x}", "`overrides` must be a list"),
        ("overrides: [x]", "overrides[0] must be a mapping, found 'x'"),
        ("overrides: [{weight: 8}]", "`overrides[0].match` must be a layer name"),
        ("overrides: [{match: a}, {match: 3}]", "`overrides[1].match` must be text"),
        ("overrides: [{match: a, bias: 8}]", "unknown key `overrides[0].bias`"),
        ("overrides: [{match: a, weight: 1}]", "`overrides[0].weight` must be a whole number"),
        ("bits: {", "not YAML, line 1"),
        ("a: 1\n\tb: 2", "not YAML, line 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text, complaint, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError) as error:
        load_profile(path)
    assert str(error.value).startswith(f"{path}: ") and complaint in str(error.value)


def test_no_such_file(tmp_path):
    with pytest.raises(ProfileError, match="no such profile: No such file"):
        load_profile(tmp_path / "none.yaml")
    with pytest.raises(ProfileError, match="no such profile: Is a directory"):
        load_profile(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match="not YAML, not even text"):
        load_profile(tmp_path / "binary")


BITS = st.builds(
    Bits,
    bias=st.integers(2, 32),
    internal=st.one_of(st.none(), st.integers(2, 32)),
    **dict.fromkeys(
        ("input", "activation", "weight", "weight_ends", "scale", "constant", "slope"),
        st.integers(2, 16),
    ),
)
WIDTH = st.one_of(st.none(), st.integers(2, 16))
PROFILE = st.builds(
    Profile,
    name=st.text(),
    description=st.text(),
    bits=BITS,
    per_channel=st.booleans(),
    rounding=st.sampled_from(ROUNDINGS),
    rounding_additions=st.one_of(st.none(), st.sampled_from(ROUNDINGS)),
    rounding_products=st.one_of(st.none(), st.sampled_from(ROUNDINGS)),
    rounding_inputs=st.one_of(st.none(), st.sampled_from(ROUNDINGS)),
    overflow=st.sampled_from(OVERFLOWS),
    accumulator_bits=st.integers(8, 64),
    accumulator_wraps=st.booleans(),
    shift=st.tuples(st.integers(-62, 0), st.integers(0, 62)),
    overrides=st.lists(st.builds(Override, st.text(), WIDTH, WIDTH)).map(tuple),
)


@given(PROFILE)
def test_a_profile_written_is_the_profile_read(profile):
    assert parse_profile(yaml.safe_load(dump_profile(profile))) == profile


BOMB = "name:\n" + "".join(
    f"- &{name} [{', '.join([before] * 9)}]\n"
    for name, before in [("a0", "x"), *((f"a{i + 1}", f"*a{i}") for i in range(12))]
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "line 3: profiles cannot have aliases"),
        ("a: &a [*a]", "profiles cannot have aliases"),
        ("bits: " + "[" * 5000 + "]" * 5000, "nested more than 20 deep"),
        ("name: 2024-13-45", "not YAML"),
        ("shift: " + "9" * 5000, "not YAML"),
        ("? [1, 2]\n: 3", "not YAML"),
        ("name: [" + "x, " * 5000 + "x]", "`name` must be text"),
        ("x" * 900 + ": 1", "unknown key"),
        ("description: " + "x" * (1 << 20), "larger than"),
    ],
)
def test_hostile_yaml_is_refused_quickly_with_a_short_message(tmp_path, text, message):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=message) as caught:
        load_profile(path)
    assert len(caught.value.message) < 300


def test_profile_that_is_a_directory(tmp_path):
    with pytest.raises(ProfileError, match="no such profile: Is a directory"):
        load_profile(tmp_path)
