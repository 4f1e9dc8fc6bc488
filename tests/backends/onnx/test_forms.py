"""Common behaviour of all ONNX forms."""

import numpy as np
import onnx
import pytest

from qgraph.backends.onnx.builder import metadata_of
from qgraph.backends.onnx.onnx_forms import FORMS
from qgraph.program import lower
from qgraph.quant.profile import Profile, load_profile
from tests.helpers.forms import OWN_PROFILES, assert_form, missing_tool, network_of
from tests.helpers.layers import Net
from tests.helpers.program_builder import ProgramBuilder
from tests.helpers.quantized import INT8, INT32_BIAS, quantize

forms = pytest.mark.parametrize("form", FORMS, ids=lambda f: f.name)


@pytest.fixture(autouse=True)
def _installed(form) -> None:
    missing = missing_tool(form.name)
    if missing is not None:
        pytest.skip(f"{form.name}: {missing}")


def profile_for(form, usual: Profile) -> Profile:
    """The profile that is made for a form, if there is one."""
    return load_profile(OWN_PROFILES[form.name][0]) if form.name in OWN_PROFILES else usual


@forms
def test_a_batch_that_is_not_free(form) -> None:
    net = Net(4, 4, 4)
    y = net.op("space_to_batch", "x", block=(2, 2), paddings=((1, 1), (0, 2)))
    y = net.conv(y, "conv")
    net.graph.outputs["y"] = net.op("batch_to_space", y, block=(2, 2), crops=((1, 1), (0, 2)))
    program = lower(quantize(net.graph, profile_for(form, INT8)))
    assert not program.batch_free
    assert_form(form, program)


@forms
def test_one_value_that_enters_twice(form) -> None:
    builder = ProgramBuilder()
    x = builder.entry((1, 4), name="x/fine", exponent=6)
    y = builder.entry((1, 4), name="x/coarse", exponent=3)
    builder.entries = [type(e)(e.tensor, "x", e.spec) for e in builder.entries]
    builder.step("mul", x, y)
    assert_form(form, builder.program())


@forms
def test_a_constant_before_what_it_is_joined_to(form) -> None:
    builder = ProgramBuilder()
    builder.step("concat", builder.constant([[1, 2, 3]]), builder.entry((1, 3)), axis=0)
    assert_form(form, builder.program(batch_free=False))


@forms
@pytest.mark.parametrize("op", ["add", "mul"])
def test_a_constant_of_more_axes_than_the_layer_before_it(form, op: str) -> None:
    builder, window = ProgramBuilder(), {"strides": (1, 1)}
    filters = builder.constant(np.arange(36).reshape(3, 3, 2, 2) - 20)
    image = builder.step("conv2d", builder.entry((1, 4, 4, 2)), filters, **window)
    builder.step(op, image, builder.constant([[[[[3, -4]]]]]))
    row = builder.step("matmul", builder.entry((1, 2)), builder.constant([[1, 2], [3, -4]]))
    builder.step(op, row, builder.constant([[[5, -6]]]))
    assert_form(form, builder.program(batch_free=False))


@forms
def test_limits_that_cross(form) -> None:
    """The lower limit is applied first, so the upper one wins."""
    builder = ProgramBuilder()
    x = builder.entry((1, 4), (-5, 5))
    builder.step("clip", x, low=10, high=7)
    builder.step("clip", x, low=(10, 1, 2, 3), high=(7, 0, 3, 9))
    assert_form(form, builder.program())


@forms
def test_a_file_is_checked_describes_its_content_and_is_reproducible(form, tmp_path) -> None:
    net = Net(8, 8, 4)
    net.graph.outputs["y"] = net.op("relu", net.conv("x", "conv"))
    program = lower(quantize(net.graph, profile_for(form, INT32_BIAS)))
    contents = []
    for name in "ab":
        (tmp_path / name).mkdir()
        form.write(network_of(program), tmp_path / name)
        contents.append((tmp_path / name / "network.onnx").read_bytes())
    assert contents[0] == contents[1]
    model = onnx.load_from_string(contents[0])
    onnx.checker.check_model(model, full_check=True)
    meta = metadata_of(model)
    (entry,), (leaving,) = program.entries, program.exits
    about = meta["entries"][entry.tensor]
    assert (meta["form"], about["source"], about["bits"]) == (form.name, "x", entry.spec.bits)
    assert about["exponent"] == entry.spec.exponent
    assert meta["exits"][leaving]["exponent"] == program.tensors[leaving].exponent
    assert [o.name for o in model.graph.output] == [leaving]


@forms
def test_sums_of_both_signs_up_to_the_bound(form) -> None:
    """Magnitudes add up to twice 2^24, but every partial sum stays within 2^24 in any order."""
    builder, rng = ProgramBuilder(), np.random.default_rng(0)
    low, high = (-128, 127) if form.name == "onnx-xint8" else (0, 256)
    x = builder.entry((1, 2048), (low, high), "x")
    weights = np.full((2048, 8), 64)
    weights[rng.permuted(np.tile(np.arange(2048)[:, None], 8), axis=0) < 1024] = -64
    w, span = builder.constant(weights), (-(2**24), 2**24)
    assert np.abs(weights).sum(0).max() * 256 == 2**25
    builder.step("matmul", x, w, span=span)
    filters = builder.constant(weights.reshape(2, 2, 512, 8))
    image = builder.step("reshape", x, shape=(1, 2, 2, 512))
    window = {"strides": (1, 1), "dilations": (1, 1), "pads": ((0, 0), (0, 0)), "groups": 1}
    builder.step("conv2d", image, filters, span=span, **window)
    ends = ((low, high), (high, low))
    extremes = [np.where(column > 0, *pair) for column in weights.T for pair in ends]
    odd = rng.integers(low, high + 1, (40, 2048))
    assert_form(form, builder.program(), codes={"x": np.concatenate([extremes, odd])})
