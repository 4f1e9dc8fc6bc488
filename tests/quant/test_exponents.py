"""Exponents as text: the same bits again, and what does not fit is named by its tensor."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import qgraph
from qgraph.errors import CalibrationError, ExactnessError, QGraphError, UsageError
from qgraph.exact.reference import Reference
from qgraph.ir.graph import Graph
from qgraph.ir.printing import print_graph
from qgraph.ir.types import Fixed
from qgraph.passes import PassManager
from qgraph.quant.assign_exponents import assign_exponents
from qgraph.quant.exponents import (
    Exponents,
    TensorExponent,
    exponents_of,
    load_exponents,
    parse_exponents,
)
from qgraph.quant.plan import PLAIN, Plan
from qgraph.quant.profile import Profile, load_profile
from qgraph.recipes import static
from qgraph.rewrite.trace import Trace
from qgraph.static.build import build
from tests.helpers.generators.graphs import graphs
from tests.helpers.generators.profiles import profiles
from tests.helpers.layers import WINDOW

INT8 = load_profile("graffitist-int8")
RNG = np.random.default_rng(0)


def network(channels: int = 4) -> Graph:
    """A branch that is joined by an addition, a dense layer, a sigmoid."""
    g = Graph("net")
    x = g.input("x", "float32", (None, 6, 6, 3))

    def conv(value: str, name: str) -> str:
        shape = (3, 3, g.types[value].shape[3], channels)
        w = g.const(RNG.normal(0, 0.3, shape).astype(np.float32), f"{name}/w")
        window = WINDOW
        y = g.add("conv2d", value, w, name=name, attrs=window)
        b = g.const(RNG.normal(0, 0.2, channels).astype(np.float32), f"{name}/b")
        return g.add("relu", g.add("bias_add", y, b, name=f"{name}/biased"))

    a = conv(x, "first")
    both = g.add("add", conv(a, "left"), conv(a, "right"), name="sum")
    flat = g.add("reshape", both, attrs={"shape": (-1, 36 * channels)})
    w = g.const(RNG.normal(0, 0.1, (36 * channels, 5)).astype(np.float32), "fc/w")
    b = g.const(RNG.normal(0, 0.1, 5).astype(np.float32), "fc/b")
    g.outputs["y"] = g.add("sigmoid", g.add("bias_add", g.add("matmul", flat, w, name="fc"), b))
    return g


NET = network()
IMAGES = RNG.normal(size=(40, 6, 6, 3)).astype(np.float32)


def quantized(**options):
    return qgraph.quantize(NET, IMAGES, **{"effort": "plain", **options})


@pytest.fixture(scope="module")
def usual():
    return quantized()


def edited(exponents: Exponents, name: str, **changes) -> Exponents:
    entry = replace(exponents.tensors[name], **changes)
    return replace(exponents, tensors={**exponents.tensors, name: entry})


def named(exponents: Exponents, graph: Graph, role: str) -> str:
    """The first tensor of a role."""
    return next(n for n in exponents.tensors if graph.nodes[n].attrs["spec"].role == role)


# -- the same bits -------------------------------------------------------------------------------


@settings(max_examples=60)
@given(graphs(), profiles(), st.booleans())
def test_a_graph_that_takes_its_own_exponents_is_the_same(graph, profile, corrected):
    data = {"x": np.random.default_rng(1).normal(size=(6, *graph.types["x"].shape[1:]))}
    data = {"x": data["x"].astype(np.float32)}
    plan = Plan(reconstruct=corrected, correct_bias=corrected)
    try:
        with np.errstate(all="ignore"):
            _, first = build(graph, profile, plan, data, Trace())
    except QGraphError:
        assume(False)
    text = exponents_of(first, {}, plan.spec()).dump()
    kept = parse_exponents(json.loads(text))
    assert kept.dump() == text
    with np.errstate(all="ignore"):
        _, second = build(graph, profile, plan, data, Trace(), exponents=kept)
    assert print_graph(second) == print_graph(first)


@pytest.mark.parametrize("effort", ["plain", "default"])
@pytest.mark.parametrize("profile", ["graffitist-int8", "graffitist-int4", "int32-bias"])
def test_the_written_file_gives_the_same_bits(effort, profile, tmp_path):
    first = quantized(effort=effort, profile=profile)
    first.save(tmp_path / "out")
    again = qgraph.quantize(NET, IMAGES, profile=profile, exponents=tmp_path / "out/exponents.json")
    again.save(tmp_path / "again")
    for name in ("inference.pb", "graph.txt", "exponents.json", "tensors.npz", "network.npz"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert again.facts.exponents == "exponents.json" and first.facts.exponents is None
    assert again.facts.choice.plan == first.facts.choice.plan


def test_bits_chosen_layer_by_layer_are_given_by_the_profile(tmp_path):
    first = quantized(effort=None, mean_bits=5)
    first.save(tmp_path / "out")
    out = tmp_path / "out"
    again = qgraph.quantize(
        NET, IMAGES, profile=out / "profile.yaml", exponents=out / "exponents.json"
    )
    assert print_graph(again.graph) == print_graph(first.graph)


def test_scales_for_each_channel_are_lists(tmp_path):
    profile = Profile("channels", per_channel=True)
    first = quantized(profile=profile)
    weights = named(first.exponents, first.graph, "weight")
    assert len(first.exponents.tensors[weights].exponent) == 4
    path = first.exponents.save(tmp_path / "e.json")
    again = qgraph.quantize(NET, IMAGES, profile=profile, exponents=path)
    assert print_graph(again.graph) == print_graph(first.graph)


def test_scales_for_each_feature_are_in_the_file(tmp_path):
    g = Graph("net")
    x = g.input("state", "float32", (None, 3))
    w = g.const(RNG.normal(size=(3, 4)).astype(np.float32), "w")
    g.outputs["y"] = g.add("relu", g.add("matmul", x, w))
    data = RNG.normal(size=(50, 3)).astype(np.float32) * np.float32([100, 1, 0.01])
    first = qgraph.quantize(g, data, plan="scale-inputs", profile="policy-int8")
    assert first.exponents.features.keys() == {"state"}
    path = first.exponents.save(tmp_path / "e.json")
    again = qgraph.quantize(g, data, exponents=path, profile="policy-int8")
    assert print_graph(again.graph) == print_graph(first.graph)
    assert again.facts.choice.plan_spec == "scale-inputs"


def test_no_data_is_needed(usual):
    again = qgraph.quantize(NET, exponents=usual.exponents)
    assert print_graph(again.graph) == print_graph(usual.graph)
    assert again.facts.warnings == [
        "no data: exponents as given; the distance from the float network was not measured"
    ]
    corrected = quantized(plan="correct-bias").exponents
    warnings = qgraph.quantize(NET, exponents=corrected).facts.warnings
    assert warnings[1] == (
        "correct-bias used generated samples: to get the network that the exponents come from, "
        "give the same calibration data"
    )


def test_a_mapping_of_names_to_exponents_is_enough(usual):
    plain = {name: entry.exponent for name, entry in usual.exponents.tensors.items()}
    again = qgraph.quantize(NET, IMAGES, exponents=plain)
    assert again.exponents.tensors == usual.exponents.tensors
    assert again.facts.exponents == "memory"


def test_an_edited_exponent_is_the_one_that_is_used(usual):
    name = named(usual.exponents, usual.graph, "activation")
    changed = edited(usual.exponents, name, exponent=usual.exponents.tensors[name].exponent - 1)
    again = qgraph.quantize(NET, IMAGES, exponents=changed)
    x = {"x": IMAGES[:3]}
    before, after = (Reference(r.graph).run(x, {name})[name] for r in (usual, again))
    assert isinstance(before, Fixed) and isinstance(after, Fixed)
    assert after.exponent == before.exponent - 1
    assert again.exponents.dump() == changed.dump()
    assert len(after.codes) and not np.array_equal(before.codes, after.codes)


def test_an_input_keeps_the_sign_that_it_had():
    positive = np.abs(IMAGES)
    first = qgraph.quantize(NET, positive, effort="plain")
    name = named(first.exponents, first.graph, "input")
    assert first.exponents.tensors[name].signed is False
    again = qgraph.quantize(NET, exponents=first.exponents)
    assert print_graph(again.graph) == print_graph(first.graph)


def test_trained_networks_write_theirs(tmp_path):
    training = quantized(mode="retrain", effort=None)
    assert training.facts.choice.plan_spec in training.exponents.dump()
    again = qgraph.quantize(NET, IMAGES, mode="retrain", exponents=training.exponents)
    assert print_graph(again.graph) == print_graph(training.graph)


# -- what does not fit ---------------------------------------------------------------------------


def refused(exponents, error=CalibrationError, **options) -> str:
    with pytest.raises(error) as raised:
        qgraph.quantize(NET, IMAGES, exponents=exponents, **options)
    return str(raised.value)


def test_unknown_and_missing_tensors_are_named(usual):
    tensors = dict(usual.exponents.tensors)
    name = named(usual.exponents, usual.graph, "weight")
    entry = tensors.pop(name)
    assert refused(Exponents(tensors)).startswith(f"{name}: its exponent is not given")
    message = refused(Exponents({**tensors, name + "x": entry}))
    assert message.startswith(f"{name}x: the network has no quantizer of this name")
    assert f"did you mean `{name}`?" in message


def test_what_follows_from_others_cannot_be_given():
    first = quantized(profile="int32-bias")
    biases = {
        n.name
        for n in first.graph.nodes.values()
        if n.op == "quantize" and n.attrs["spec"].role == "bias"
    }
    assert len(biases) == 4 and not biases & first.exponents.tensors.keys()
    name = min(biases)
    tensors = {**first.exponents.tensors, name: TensorExponent(3)}
    message = refused(replace(first.exponents, tensors=tensors), profile="int32-bias")
    assert message.startswith(f"{name}: its exponent follows from others")


def test_a_member_of_a_scale_group_cannot_have_one_of_its_own(usual):
    groups: dict[str, list[str]] = {}
    for name in usual.exponents.tensors:
        group = usual.graph.nodes[name].attrs["spec"].group
        groups.setdefault(str(group), []).append(name)
    first, second, *_ = next(v for k, v in groups.items() if k != "None")
    now = usual.exponents.tensors[second].exponent
    message = refused(edited(usual.exponents, second, exponent=now + 1))
    assert message.startswith(f"{second}: has exponent {now + 1}, `{first}` has {now}")
    both = edited(edited(usual.exponents, first, exponent=now - 1), second, exponent=now - 1)
    assert qgraph.quantize(NET, IMAGES, exponents=both).exponents.tensors == both.tensors


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"exponent": 127}, ExactnessError, "exponent 127 is outside -126..126"),
        ({"exponent": -60}, ExactnessError, "needs a requantization shift of"),
        ({"exponent": (1, 2)}, CalibrationError, "has one scale, and 2 exponents are given"),
        ({"bits": 4}, CalibrationError, "its exponent is for 4 bits, the profile gives it"),
        ({"signed": True}, CalibrationError, "its exponent is for signed codes, the network has"),
    ],
    ids=str,
)
def test_an_illegal_exponent_is_named_by_its_tensor(usual, change, error, message):
    name = next(
        n
        for n in usual.exponents.tensors
        if usual.graph.nodes[n].attrs["spec"].role == "activation"
        and not usual.exponents.tensors[n].signed
    )
    profile = replace(INT8, shift=(-8, 40))
    text = refused(edited(usual.exponents, name, **change), error, profile=profile)
    assert message in text and text.split(": ")[0] in usual.graph.nodes


def test_channels_are_counted():
    profile = Profile("channels", per_channel=True)
    first = quantized(profile=profile)
    name = named(first.exponents, first.graph, "weight")
    for wrong, count in (((1, 2, 3), 3), (4, 1)):
        message = refused(edited(first.exponents, name, exponent=wrong), profile=profile)
        assert message.startswith(
            f"{name}: has 4 scales, one for each channel, and {count} exponents"
        )


def test_weights_so_fine_that_a_bias_would_saturate_are_refused():
    profile = Profile("narrow", bits=replace(INT8.bits, bias=8, internal=None))
    first = quantized(profile=profile)
    name = named(first.exponents, first.graph, "weight")
    now = first.exponents.tensors[name].exponent
    message = refused(
        edited(first.exponents, name, exponent=now + 4), ExactnessError, profile=profile
    )
    assert message.startswith(f"{name}: its exponent is too large for the bias `first/b`")
    assert qgraph.quantize(NET, IMAGES, exponents=first.exponents, profile=profile)


def test_exponents_of_another_plan_or_profile_are_not_taken(usual):
    for options in ({"plan": "equalize=weights"}, {"profile": "graffitist-int4"}):
        message = refused(usual.exponents, **options)
        assert "no quantizer of this name" in message and "depend on the plan" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effort": "default"}, "effort `default`, which searches for others"),
        ({"mean_bits": 5}, "exclude a weight budget"),
    ],
    ids=str,
)
def test_what_would_choose_other_exponents_is_refused(usual, options, message):
    assert message in refused(usual.exponents, UsageError, **options)


# -- the text ------------------------------------------------------------------------------------

names = st.text(st.characters(), max_size=20)
entries = st.builds(
    TensorExponent,
    st.integers(-200, 200) | st.lists(st.integers(-200, 200), min_size=1).map(tuple),
    st.none() | st.integers(2, 32),
    st.none() | st.booleans(),
)
features = st.dictionaries(names, st.lists(st.integers(-126, 126)).map(tuple))


@given(st.dictionaries(names, entries), features, st.none() | names, st.booleans())
def test_text_is_read_back_as_it_was(tensors, features, plan, apart):
    kept = Exponents(tensors, features, plan, apart)
    assert parse_exponents(json.loads(kept.dump())) == kept


def test_a_file_has_a_tensor_a_line(usual, tmp_path):
    path = usual.exponents.save(tmp_path / "e.json")
    lines = path.read_text().splitlines()
    for name in usual.exponents.tensors:
        assert sum(json.dumps(name) in line for line in lines) == 1
    assert load_exponents(path) == usual.exponents


WRONG = {
    "": "not JSON",
    "[]": "not exponents of format 1",
    '{"format": 2, "tensors": {}}': "not exponents of format 1",
    '{"format": 1}': "`tensors`, `features` and `factors` must be mappings",
    '{"format": 1, "tensors": {}, "tensor": {}}': "unknown key `tensor`",
    '{"format": 1, "tensors": {"a": 1, "a": 2}}': "`a` occurs twice",
    '{"format": 1, "tensors": {"a": 1.5}}': "a: {}: its exponent cannot be 1.5",
    '{"format": 1, "tensors": {"a": true}}': "a: {}: its exponent cannot be True",
    '{"format": 1, "tensors": {"a": []}}': "a: {}: its exponent cannot be []",
    '{"format": 1, "tensors": {"a": "3"}}': "a: {}: its exponent cannot be '3'",
    '{"format": 1, "tensors": {"a": {}}}': "a: {}: `exponent` is missing",
    '{"format": 1, "tensors": {"a": {"exponent": 1, "bit": 8}}}': "a: {}: unknown key `bit`",
    '{"format": 1, "tensors": {"a": {"exponent": 1, "bits": "8"}}}': "a: {}: `bits` is a whole",
    '{"format": 1, "tensors": {}, "features": {"x": [1, null]}}': "x: {}: exponents of features",
    '{"format": 1, "tensors": {}, "plan": 3}': "`plan` must be text",
    '{"format": 1, "tensors": {}, "held_out": 3}': "`held_out` must be true or false",
    "[" * 100_000: "not JSON",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:60])
def test_a_file_that_is_wrong_is_named_with_its_tensor(text, tmp_path):
    path = tmp_path / "e.json"
    path.write_text(text)
    with pytest.raises(CalibrationError) as error:
        load_exponents(path)
    assert WRONG[text].format(path) in str(error.value) and str(path) in str(error.value)
    with pytest.raises(CalibrationError, match="no exponents can be read: No such file"):
        load_exponents(tmp_path / "gone.json")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(names, inner)))  # fmt: skip
def test_any_data_is_read_or_is_an_error_of_ours(data):
    for found in (data, {"format": 1, "tensors": data}, {"format": 1, "tensors": {"a": data}}):
        with suppress(CalibrationError, ExactnessError):
            parse_exponents(found)


def test_assigned_exponents_reach_every_quantizer(usual):
    g = NET.copy()
    PassManager(static(INT8, PLAIN)).run(g)
    assign_exponents(g, usual.exponents, INT8.shift)
    assert "calibrated" in g.facts and print_graph(g) == print_graph(usual.graph)


def test_factors_have_the_range_of_the_pass_that_takes_them():
    """They are log2 in sixteenths: 2^12 is 192, past what exponents may be."""
    held = parse_exponents({"format": 1, "tensors": {}, "factors": {"conv": [192, -192]}})
    assert held.factors == {"conv": (192, -192)}
