"""Ops that move values against ONNX Runtime, with odd attributes."""

import numpy as np
import pytest

from tests.helpers.onnx_graphs import assert_like_runtime, f, feed_of, ints, one_op

IMAGE, ROW, SIGNAL = f(2, 4, 9, 7), f(3, 6), f(2, 4, 11)

MOVES = {
    "Concat": one_op("Concat", IMAGE, f(2, 3, 9, 7), axis=1),
    "Concat_1": one_op("Concat", IMAGE, axis=-1),
    "Pad": one_op("Pad", IMAGE, ints(0, 1, 2, 0, 0, 0, 1, 3), np.float32(2.5)),
    "Pad_zero": one_op("Pad", IMAGE, ints(0, 0, 2, 0, 0, 0, 1, 3)),
    "Pad_10": one_op("Pad", IMAGE, opset=10, pads=[0, 1, 2, 0, 0, 0, 1, 3], value=1.5),
    "Pad_18": one_op("Pad", IMAGE, ints(1, 2, 3, 1), None, ints(2, -1), opset=18),
    "Pad_reflect": one_op("Pad", IMAGE, ints(0, 0, 2, 3, 0, 0, 1, 0), mode="reflect"),
    "Pad_edge": one_op("Pad", IMAGE, ints(0, 0, 1, 1, 0, 0, 1, 0), mode="edge"),
    "Pad_negative": one_op("Pad", IMAGE, ints(0, 0, -2, 3, 0, 0, 1, -1)),
    "Reshape": one_op("Reshape", IMAGE, ints(0, -1, 3, 7)),
    "Reshape_flat": one_op("Reshape", IMAGE, ints(2, 252)),
    "Flatten": one_op("Flatten", IMAGE),
    "Flatten_0": one_op("Flatten", IMAGE, axis=0),
    "Flatten_3": one_op("Flatten", IMAGE, axis=-1),
    "Squeeze": one_op("Squeeze", f(2, 1, 3, 1)),
    "Squeeze_axes": one_op("Squeeze", f(2, 1, 3, 1), ints(-1)),
    "Squeeze_11": one_op("Squeeze", f(2, 1, 3, 1), opset=11, axes=[1]),
    "Unsqueeze": one_op("Unsqueeze", ROW, ints(0, -1)),
    "Unsqueeze_11": one_op("Unsqueeze", ROW, opset=11, axes=[1, 3]),
    "Transpose": one_op("Transpose", IMAGE, perm=[1, 3, 0, 2]),
    "Transpose_reversed": one_op("Transpose", IMAGE),
    "Tile": one_op("Tile", ROW, ints(2, 3)),
    "Expand": one_op("Expand", f(3, 1), ints(3, 4)),
    "Expand_ones": one_op("Expand", f(3, 4), ints(1, 1)),
    "Slice": one_op("Slice", IMAGE, ints(1, 2), ints(100, -1), ints(1, -1)),
    "Slice_steps": one_op(
        "Slice", IMAGE, ints(8, 0), ints(-(2**31), 2**63 - 1), ints(2, 3), ints(-2, 3)
    ),
    "Slice_9": one_op("Slice", IMAGE, opset=9, starts=[1, 0], ends=[3, 9], axes=[1, 2]),
    "Slice_9_all": one_op("Slice", ROW, opset=9, starts=[1, -2], ends=[3, 9]),
    "Split": one_op("Split", IMAGE, axis=1, outputs=("y", "z")),
    "Split_sizes": one_op("Split", IMAGE, ints(1, 3), axis=1, outputs=("y", "z")),
    "Split_11": one_op("Split", IMAGE, opset=11, split=[4, 5], axis=2, outputs=("y", "z")),
    "Split_18": one_op("Split", IMAGE, opset=18, num_outputs=3, axis=3, outputs=("y", "z", "u")),
    "Gather_one": one_op("Gather", IMAGE, np.int64(-1), axis=1),
    "Gather_run": one_op("Gather", IMAGE, ints(1, 3), axis=1),
    "Gather_any": one_op("Gather", IMAGE, ints(3, 0, -2), axis=2),
    "Identity": one_op("Identity", IMAGE),
    "Dropout": one_op("Dropout", IMAGE),
    "Dropout_9": one_op("Dropout", IMAGE, opset=9, ratio=0.5),
    "Cast": one_op("Cast", 9 * IMAGE, to=7),
    "SpaceToDepth": one_op("SpaceToDepth", f(2, 3, 4, 6), blocksize=2),
    "DepthToSpace": one_op("DepthToSpace", f(2, 8, 4, 3), blocksize=2),
    "DepthToSpace_CRD": one_op("DepthToSpace", f(2, 8, 4, 3), blocksize=2, mode="CRD"),
}


def resize(scales=None, sizes=None, opset=13, x=IMAGE, **attrs):
    others = [np.float32([]), scales if scales is None else np.float32(scales), sizes]
    return one_op("Resize", x, *others, opset=opset, **attrs)


RESIZES = {
    "plain": resize(
        [1, 1, 2, 3], coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    "half_pixel": resize([1, 1, 2, 2]),
    "pytorch": resize(
        [1, 1, 2, 2],
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
        mode="nearest",
    ),
    "sizes": resize(sizes=ints(2, 4, 18, 21)),
    "smaller": resize(
        sizes=ints(2, 4, 3, 7), nearest_mode="floor", coordinate_transformation_mode="asymmetric"
    ),
    "corners": resize(
        sizes=ints(2, 4, 17, 13),
        coordinate_transformation_mode="align_corners",
        nearest_mode="round_prefer_ceil",
    ),
    "opset_10": one_op("Resize", IMAGE, np.float32([1, 1, 2, 2]), opset=10),
    "opset_9": one_op("Upsample", IMAGE, np.float32([1, 1, 3, 2]), opset=9),
    "signal": resize([1, 1, 2], x=SIGNAL),
}
CASES = {**MOVES, **{f"resize_{k}": v for k, v in RESIZES.items()}}


@pytest.mark.parametrize("case", CASES)
def test_op_computes_what_onnx_runtime_does(case):
    assert_like_runtime(CASES[case], {"x": feed_of(CASES[case])})
