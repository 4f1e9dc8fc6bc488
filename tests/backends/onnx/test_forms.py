"""Common behaviour of all ONNX forms."""

import numpy as np
import onnx
import pytest

from qgraph.backends.onnx.builder import metadata_of
from qgraph.backends.onnx.onnx_forms import FORMS
from qgraph.program import lower
from tests.helpers.exports import Made, assert_form, network
from tests.helpers.layers import Net
from tests.helpers.quantized import INT32_BIAS, quantize

forms = pytest.mark.parametrize("form", FORMS, ids=lambda f: f.name)


@pytest.fixture(autouse=True)
def _installed(form) -> None:
    if form.name == "qonnx":
        pytest.importorskip("qonnx")


@forms
def test_a_batch_that_is_not_free(form) -> None:
    net = Net(4, 4, 4)
    y = net.op("space_to_batch", "x", block=(2, 2), paddings=((1, 1), (0, 2)))
    y = net.conv(y, "conv")
    net.graph.outputs["y"] = net.op("batch_to_space", y, block=(2, 2), crops=((1, 1), (0, 2)))
    program = lower(quantize(net.graph))
    assert not program.batch_free
    assert assert_form(form, program)


@forms
def test_one_value_that_enters_twice(form) -> None:
    made = Made()
    x = made.entry("x/fine", (1, 4), -128, 127, 6)
    y = made.entry("x/coarse", (1, 4), -128, 127, 3)
    made.entries = [type(e)(e.tensor, "x", e.spec) for e in made.entries]
    made.step("mul", (x, y), (1, 4), (-(2**14), 2**14), exponent=9)
    assert assert_form(form, made.program())


@forms
def test_a_file_is_checked_says_what_it_holds_and_is_always_the_same(form, tmp_path) -> None:
    net = Net(8, 8, 4)
    net.graph.outputs["y"] = net.op("relu", net.conv("x", "conv"))
    program = lower(quantize(net.graph, INT32_BIAS))
    contents = []
    for name in "ab":
        (tmp_path / name).mkdir()
        form.write(network(program), tmp_path / name)
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
    """Sizes add up to twice 2^24; every partial sum stays within it, whatever its order."""
    made, rng = Made(), np.random.default_rng(0)
    x = made.entry("x", (1, 2048), 0, 256)
    weights = np.full((2048, 8), 64)
    weights[rng.permuted(np.tile(np.arange(2048)[:, None], 8), axis=0) < 1024] = -64
    w, span = made.constant(weights), (-(2**24), 2**24)
    assert np.abs(weights).sum(0).max() * 256 == 2**25
    made.step("matmul", (x, w), (1, 8), span)
    filters = made.constant(weights.reshape(2, 2, 512, 8))
    image = made.step("reshape", (x,), (1, 2, 2, 512), (0, 256), shape=(1, 2, 2, 512))
    window = {"strides": (1, 1), "dilations": (1, 1), "pads": ((0, 0), (0, 0)), "groups": 1}
    made.step("conv2d", (image, filters), (1, 1, 1, 8), span, **window)
    extremes = [np.where(column > 0, top, 256 - top) for column in weights.T for top in (0, 256)]
    odd = rng.integers(0, 257, (40, 2048))
    assert assert_form(form, made.program(), codes={"x": np.concatenate([extremes, odd])})
