"""The native kernels agree with numpy, to the bit, for any shape, layout and thread count.

Those of the quantizer are in test_quantize_kernels.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import qgraph
from qgraph import kernels
from qgraph.backends.engine import Engine
from qgraph.errors import UnsupportedError
from qgraph.kernels import plain
from qgraph.kernels.extension import load
from qgraph.kernels.plain import Float32, Stage
from qgraph.parallel import over_chunks
from qgraph.rl.broadcast.memory import Region
from tests.helpers.fused_sums import convolved

BIG = 8_500_003  # several threads' worth, and no multiple of any block


def floats(nan: bool) -> st.SearchStrategy[Float32]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, max_side=40)
    elements = st.floats(width=32, allow_nan=nan) | st.integers(-64, 64).map(lambda i: i / 8)
    return hnp.arrays(np.float32, shapes, elements=elements)


@pytest.fixture(scope="module")
def big() -> Float32:
    return np.random.default_rng(0).normal(size=BIG).astype(np.float32)


def same_bits(a: Float32, b: Float32) -> bool:
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


def test_the_backend_is_named_with_the_reason() -> None:
    which, _, why = kernels.backend().partition(": ")
    assert which in {"native", "numpy"}
    assert why


def test_the_extension_was_built_from_these_sources() -> None:
    assert "other sources" not in kernels.backend()


@pytest.mark.parametrize("interface", [None, "of another build"])
def test_an_extension_of_other_sources_is_not_used(monkeypatch, interface: str | None) -> None:
    """One from before there were interfaces has none."""
    found = ModuleType("qgraph._native")
    found.__file__ = "qgraph/_native.so"
    if interface is not None:
        found.INTERFACE = interface
    monkeypatch.setitem(sys.modules, "qgraph._native", found)
    module, why = load()
    assert module is None
    assert why == "numpy: qgraph/_native.so was built from other sources; rebuild: make venv"


def test_native_only_functions_report_why_they_are_unavailable(monkeypatch) -> None:
    monkeypatch.setattr(kernels.native, "extension", None)
    monkeypatch.setattr(kernels.native, "loaded_from", "numpy: x.so is old; rebuild: make venv")
    for part in (Engine.open, Region.create):
        with pytest.raises(UnsupportedError, match=r"native code: x\.so is old; rebuild"):
            part("x", 1)


def test_an_extension_that_is_not_built_is_done_without(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "qgraph._native", None)
    monkeypatch.setattr(sys, "path", [])
    module, why = load()
    assert module is None
    assert why.startswith("numpy: the native extension isn't available")


def test_a_checkout_that_hides_an_installed_extension_is_reported(monkeypatch, tmp_path) -> None:
    """Python in a clone imports the clone, which has no native code after `pip install .`."""
    (tmp_path / "qgraph").mkdir()
    (tmp_path / "qgraph/_native.abi3.so").touch()
    monkeypatch.setitem(sys.modules, "qgraph._native", None)
    monkeypatch.setattr(sys, "path", [str(Path(qgraph.__file__).parents[1]), str(tmp_path)])
    with pytest.warns(RuntimeWarning, match="run Python in another directory"):
        module, why = load()
    assert module is None
    assert f"before the installed {tmp_path / 'qgraph'}" in why


@given(floats(nan=True))
def test_minmax_is_numpys(x: Float32) -> None:
    np.testing.assert_equal(kernels.minmax(x), plain.minmax(x))


@pytest.mark.parametrize("where", [0, 1, BIG // 2, BIG - 1])
def test_minmax_sees_a_nan_anywhere(big: Float32, where: int) -> None:
    x = big.copy()
    x[where] = np.nan
    assert np.isnan(kernels.minmax(x)).all()


def test_minmax_of_nothing() -> None:
    with pytest.raises(ValueError, match="empty"):
        kernels.minmax(np.empty((0, 3), np.float32))


@given(floats(nan=False), st.integers(-256, 256) | st.integers(-3, 6), st.integers(0, 12))
def test_histogram_is_numpys(x: Float32, exponent: int, log2_bins: int) -> None:
    counts = kernels.histogram(x, exponent, log2_bins)
    assert counts.dtype == np.int64
    assert counts.sum() == np.count_nonzero(x)
    np.testing.assert_array_equal(counts, plain.histogram(x, exponent, log2_bins))


def test_histogram_ends_and_edges() -> None:
    inf, tiny = np.inf, 2.0**-149
    x = np.array([-inf, -1, -0.5, -tiny, -0.0, 0, tiny, 0.5, 1, inf], np.float32)
    np.testing.assert_array_equal(kernels.histogram(x, 0, 1), [2, 2, 1, 3])
    np.testing.assert_array_equal(kernels.histogram(x, 200, 1), [1, 3, 3, 1])


def test_histogram_of_nothing_and_of_nan() -> None:
    assert kernels.histogram(np.empty(0, np.float32), 0, 3).tolist() == [0] * 16
    with pytest.raises(ValueError, match="NaN"):
        kernels.histogram(np.array([0, np.nan], np.float32), 0, 3)


@pytest.mark.parametrize(("exponent", "log2_bins"), [(0, 21), (0, -1), (257, 3), (-257, 3)])
def test_histogram_refuses(exponent: int, log2_bins: int) -> None:
    with pytest.raises(ValueError, match="must be in"):
        kernels.histogram(np.zeros(1, np.float32), exponent, log2_bins)


@given(st.data())
def test_depthwise_is_numpys(data: st.DataObject) -> None:
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.tuples(*[st.integers(low, high)] * 2))

    strides, dilations = pair(1, 3), pair(1, 3)
    pads = pair(0, 4) + pair(0, 4)
    kernel = pair(1, 4)
    fits = [
        max(1, (kernel[axis] - 1) * dilations[axis] + 1 - pads[2 * axis] - pads[2 * axis + 1])
        for axis in (0, 1)
    ]
    n, c = pair(1, 20)
    height, width = (data.draw(st.integers(least, least + 9)) for least in fits)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = rng.normal(size=(n, height, width, c)).astype(np.float32)
    w = rng.normal(size=(*kernel, c)).astype(np.float32)
    y = kernels.depthwise_conv2d(x, w, strides, dilations, pads)
    assert same_bits(y, plain.depthwise_conv2d(x, w, strides, dilations, pads))


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize(
    ("image", "kernel", "outputs", "strides", "dilations", "pads"),
    [
        ((2, 9, 7, 3), (3, 3, 3), 5, (2, 1), (1, 1), (1, 1, 0, 2)),
        ((1, 12, 9, 6), (3, 2, 3), 66, (1, 2), (2, 3), (2, 1, 3, 0)),
        ((1, 40, 40, 35), (1, 1, 35), 48, (1, 1), (1, 1), (0, 0, 0, 0)),
        ((1, 5, 5, 100), (3, 3, 100), 40, (1, 1), (1, 1), (1, 1, 1, 1)),
    ],
)
def test_convolution_is_summed_in_the_order_that_is_defined(
    image, kernel, outputs, strides, dilations, pads
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=image).astype(np.float32)
    w = rng.normal(size=(*kernel, outputs)).astype(np.float32)
    found = kernels.conv2d(x, w, strides, dilations, pads)
    assert same_bits(found, convolved(x, w, strides, dilations, pads))


@given(st.data())
def test_convolution_is_numpys_where_sums_are_exact(data: st.DataObject) -> None:
    """Sums of small integers fit float32 in any order."""

    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.tuples(*[st.integers(low, high)] * 2))

    strides, dilations = pair(1, 3), pair(1, 3)
    pads = pair(0, 4) + pair(0, 4)
    kernel = pair(1, 4)
    groups, c = pair(1, 3)
    outputs = groups * data.draw(st.integers(1, 40))
    height, width = (
        data.draw(st.integers(size, size + 9))
        for size in (
            max(1, (kernel[i] - 1) * dilations[i] + 1 - pads[2 * i] - pads[2 * i + 1])
            for i in (0, 1)
        )
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = rng.integers(-9, 9, (2, height, width, c * groups)).astype(np.float32)
    w = rng.integers(-9, 9, (*kernel, c, outputs)).astype(np.float32)
    y = kernels.conv2d(x, w, strides, dilations, pads)
    assert same_bits(y, plain.conv2d(x, w, strides, dilations, pads))


def test_convolution_without_native_code_is_near() -> None:
    """The error of a sum is at most its length times the unit roundoff of its sizes."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 9, 9, 70)).astype(np.float32)
    w = rng.normal(size=(3, 3, 70, 21)).astype(np.float32)
    geometry = (1, 2), (1, 1), (1, 1, 1, 1)
    sizes = plain.conv2d(np.abs(x), np.abs(w), *geometry)
    off = np.abs(kernels.conv2d(x, w, *geometry) - plain.conv2d(x, w, *geometry))
    assert (off <= 2 * w[..., 0].size * 2.0**-24 * sizes).all()


@pytest.mark.parametrize(
    ("filter_shape", "strides", "pads"),
    [
        ((3, 3, 2), (1, 1), (1, 1, 1, 1)),
        ((3, 3, 3, 2), (1, 1), (1, 1, 1, 1)),
        ((3, 3, 1, 3), (1, 1), (1, 1, 1, 1)),
        ((3, 3, 2, 2), (0, 1), (1, 1, 1, 1)),
        ((3, 3, 2, 2), (1, 1), (1, 1, -1, 1)),
        ((9, 3, 2, 2), (1, 1), (1, 1, 1, 1)),
    ],
)
def test_convolution_refuses(filter_shape, strides, pads) -> None:
    x = np.zeros((1, 5, 5, 2), np.float32)
    with pytest.raises(ValueError):
        kernels.conv2d(x, np.zeros(filter_shape, np.float32), strides, (1, 1), pads)


STEPS = st.builds(
    Stage,
    st.none() | st.tuples(st.integers(-3, 9), st.just(-128), st.just(127), st.just("half_even")),
    st.none() | hnp.arrays(np.float32, 5, elements=st.floats(-9, 9, width=32)),
    st.sampled_from([0.0, -np.inf]),
    st.sampled_from([6.0, np.inf]),
    st.none() | hnp.arrays(np.float32, 5, elements=st.floats(0.125, 9, width=32)),
)


@given(hnp.arrays(np.float32, (7, 5), elements=st.floats(width=32)), STEPS)
def test_stage_is_numpys(x: Float32, steps: Stage) -> None:
    wanted, ends = plain.stage(x, steps)
    y, found = kernels.stage(x, steps)
    assert same_bits(y, wanted)
    np.testing.assert_array_equal(found, ends)
    assert kernels.stage(x, steps, out=x)[0] is x
    assert same_bits(x, wanted)


@pytest.mark.parametrize("channels", [1, 3, 4096, 5000])
def test_stage_of_many_blocks(big: Float32, threads: int, channels: int) -> None:
    x, bias = big[: 300 * 5000 // channels * channels].reshape(-1, channels), big[-channels:]
    steps = Stage((5, -128, 127, "half_up"), bias, 0.0, 6.0, np.abs(bias) + np.float32(1))
    wanted, ends = plain.stage(x, steps)
    y, found = kernels.stage(x, steps)
    assert same_bits(y, wanted)
    assert found == ends


def test_stage_sees_a_nan_in_any_block(big: Float32) -> None:
    for where in (0, 9_000, 20_000 - 1):
        x = big[:20_000].copy()
        x[where] = np.nan
        y, ends = kernels.stage(x, Stage(low=0.0))
        assert np.isnan(ends).all()
        assert [*np.flatnonzero(np.isnan(y))] == [where]


def test_stage_refuses() -> None:
    x = np.ones((2, 3), np.float32)
    wrong = (
        Stage(bias=x[0, :2]), Stage(bias=x), Stage(ceiling=x[0, :2]), Stage((200, -1, 1, "half_up"))
    )  # fmt: skip
    for steps in wrong:
        with pytest.raises(ValueError):
            kernels.stage(x, steps)
    with pytest.raises(ValueError, match="empty"):
        kernels.stage(x[:0], Stage())


def test_depthwise_by_hand() -> None:
    x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    y = kernels.depthwise_conv2d(x, np.ones((3, 3, 1), np.float32), (2, 2), (1, 1), (1, 1, 1, 1))
    np.testing.assert_array_equal(y[0, :, :, 0], [[8, 12], [20, 24]])


@pytest.mark.parametrize(
    ("filter_shape", "strides", "pads"),
    [
        ((3, 3, 4), (1, 1), (1, 1, 1, 1)),
        ((3, 3), (1, 1), (1, 1, 1, 1)),
        ((3, 3, 2), (0, 1), (1, 1, 1, 1)),
        ((3, 3, 2), (1, 1), (1, 1, -1, 1)),
        ((9, 3, 2), (1, 1), (1, 1, 1, 1)),
    ],
)
def test_depthwise_refuses(
    filter_shape: tuple[int, ...], strides: tuple[int, int], pads: tuple[int, int, int, int]
) -> None:
    x = np.zeros((1, 5, 5, 2), np.float32)
    with pytest.raises(ValueError):
        kernels.depthwise_conv2d(x, np.zeros(filter_shape, np.float32), strides, (1, 1), pads)


def test_threads_change_nothing(big: Float32, threads: int) -> None:
    assert kernels.minmax(big) == plain.minmax(big)
    counts = kernels.histogram(big, 2, 11)
    np.testing.assert_array_equal(counts, plain.histogram(big, 2, 11))
    assert same_bits(kernels.quantize(big, 5, -128, 127), plain.quantize(big, 5, -128, 127))
    x, w = big[: 9 * 64 * 64 * 32].reshape(9, 64, 64, 32), big[: 9 * 32].reshape(3, 3, 32)
    geometry = (2, 1), (1, 2), (0, 1, 2, 2)
    assert same_bits(
        kernels.depthwise_conv2d(x, w, *geometry), plain.depthwise_conv2d(x, w, *geometry)
    )


def test_threads_change_no_convolution(big: Float32, threads: int) -> None:
    x, w = big[: 3 * 40 * 40 * 32].reshape(3, 40, 40, 32), big[: 9 * 32 * 64].reshape(3, 3, 32, 64)
    geometry = (1, 1), (1, 1), (1, 1, 1, 1)
    found = kernels.conv2d(x, w, *geometry)
    kernels.set_threads(1)
    assert same_bits(found, kernels.conv2d(x, w, *geometry))


def test_threads_that_share_the_cpus_start_no_others() -> None:
    native = pytest.importorskip("qgraph._native")
    kernels.set_threads(2)
    with over_chunks(2) as each:
        assert each is map or [*each(lambda _: native.threads(), range(2))] == [1, 1]
    assert native.threads() == 2


def test_threads_refuses_none() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        kernels.set_threads(0)


def test_any_layout_but_one_dtype() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (x.T, x[::2, ::-1], np.asfortranarray(x)):
        assert kernels.minmax(view) == plain.minmax(view)
        assert same_bits(kernels.quantize(view, -1, 0, 9), plain.quantize(view, -1, 0, 9))
    with pytest.raises(TypeError, match="float64"):
        kernels.minmax(x.astype(np.float64))
