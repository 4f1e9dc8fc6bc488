"""Layers, pools and norms against ONNX Runtime, with odd attributes."""

import numpy as np
import pytest

from qgraph.interpret import evaluate
from tests.helpers.onnx_graphs import (
    assert_like_runtime,
    f,
    feed_of,
    imported,
    one_op,
    positive,
)

IMAGE, ROW, SIGNAL = f(2, 4, 9, 7), f(3, 6), f(2, 4, 11)

CONVOLUTIONS = {
    "conv": one_op("Conv", IMAGE, f(5, 4, 3, 2)),
    "conv_bias": one_op("Conv", IMAGE, f(5, 4, 3, 3), f(5), pads=[1, 0, 2, 1], strides=[2, 1]),
    "conv_groups": one_op("Conv", IMAGE, f(6, 2, 3, 3), f(6), group=2, dilations=[2, 1]),
    "conv_depthwise": one_op("Conv", IMAGE, f(4, 1, 3, 3), f(4), group=4, pads=[1, 1, 1, 1]),
    "conv_multiplier": one_op("Conv", IMAGE, f(8, 1, 3, 2), group=4),
    "conv_same_upper": one_op("Conv", IMAGE, f(5, 4, 4, 4), auto_pad="SAME_UPPER", strides=[2, 2]),
    "conv_same_lower": one_op("Conv", IMAGE, f(5, 4, 4, 2), auto_pad="SAME_LOWER", strides=[2, 1]),
    "conv_valid": one_op("Conv", IMAGE, f(5, 4, 4, 2), auto_pad="VALID", strides=[2, 3]),
    "conv_pointwise": one_op("Conv", IMAGE, f(5, 4, 1, 1), strides=[2, 2], opset=9),
    "conv_1d": one_op("Conv", SIGNAL, f(5, 4, 3), f(5), pads=[2, 1], strides=[2]),
    "conv_1d_depthwise": one_op("Conv", SIGNAL, f(4, 1, 3), group=4, dilations=[3]),
    "conv_1d_same": one_op("Conv", SIGNAL, f(5, 4, 4), auto_pad="SAME_UPPER", strides=[2]),
    "transposed": one_op("ConvTranspose", IMAGE, f(4, 5, 3, 3)),
    "transposed_2": one_op("ConvTranspose", IMAGE, f(4, 5, 2, 2), f(5), strides=[2, 2]),
    "transposed_3": one_op(
        "ConvTranspose",
        IMAGE,
        f(4, 5, 3, 3),
        f(5),
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        output_padding=[1, 1],
    ),
    "transposed_uneven": one_op(
        "ConvTranspose", IMAGE, f(4, 3, 5, 4), strides=[3, 3], pads=[2, 0, 1, 3]
    ),
    "transposed_groups": one_op(
        "ConvTranspose", IMAGE, f(4, 3, 3, 3), f(6), group=2, strides=[2, 2]
    ),
    "transposed_depthwise": one_op(
        "ConvTranspose", IMAGE, f(4, 1, 4, 4), group=4, strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "transposed_wide": one_op("ConvTranspose", IMAGE, f(4, 5, 3, 4), f(5), strides=[1, 2]),
    "transposed_high": one_op("ConvTranspose", IMAGE, f(4, 5, 3, 4), f(5), strides=[2, 1]),
    "transposed_both": one_op("ConvTranspose", IMAGE, f(4, 5, 3, 4), f(5), strides=[2, 3]),
    "transposed_dilated": one_op(
        "ConvTranspose", IMAGE, f(4, 5, 3, 2), dilations=[2, 3], strides=[2, 2]
    ),
    "transposed_shape": one_op(
        "ConvTranspose", IMAGE, f(4, 5, 3, 3), strides=[2, 2], output_shape=[18, 14]
    ),
    "transposed_same": one_op(
        "ConvTranspose", IMAGE, f(4, 5, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "transposed_same_lower": one_op(
        "ConvTranspose", IMAGE, f(4, 5, 3, 3), strides=[2, 2], auto_pad="SAME_LOWER"
    ),
    "transposed_1d": one_op("ConvTranspose", SIGNAL, f(4, 5, 4), f(5), strides=[2], pads=[1, 1]),
}
PRODUCTS = {
    "gemm": one_op("Gemm", ROW, f(6, 5), f(5)),
    "gemm_trans_b": one_op("Gemm", ROW, f(5, 6), f(5), transB=1, alpha=0.5, beta=3.0),
    "gemm_trans_a": one_op("Gemm", ROW, f(3, 5), transA=1),
    "gemm_matrix": one_op("Gemm", ROW, f(6, 5), f(3, 5), beta=0.25),
    "gemm_column": one_op("Gemm", ROW, f(6, 5), f(3, 1)),
    "gemm_row": one_op("Gemm", ROW, f(6, 5), f(1, 5)),
    "gemm_scalar": one_op("Gemm", ROW, f(6, 5), np.float32(3)),
    "gemm_no_beta": one_op("Gemm", ROW, f(6, 5), f(5), beta=0.0),
    "matmul": one_op("MatMul", ROW, f(6, 2)),
    "matmul_rows": one_op("MatMul", f(2, 3, 6), f(6, 2)),
    "matmul_rows_4": one_op("MatMul", f(2, 3, 5, 6), f(6, 2)),
    "matmul_batch": one_op("MatMul", f(2, 3, 6), f(2, 6, 2)),
    "matmul_wide": one_op("MatMul", ROW, f(2, 6, 2)),
    "matmul_one": one_op("MatMul", ROW, f(1, 6, 2)),
}
POOLS = {
    "max_pool": one_op("MaxPool", IMAGE, kernel_shape=[3, 2]),
    "max_pool_pads": one_op(
        "MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 2]
    ),
    "max_pool_ceil": one_op("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    "max_pool_ceil_3": one_op(
        "MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 3], pads=[1, 1, 0, 0], ceil_mode=1
    ),
    "max_pool_same": one_op(
        "MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER"
    ),
    "max_pool_1d": one_op("MaxPool", SIGNAL, kernel_shape=[3], strides=[2], ceil_mode=1),
    "average_pool": one_op("AveragePool", IMAGE, kernel_shape=[3, 2], strides=[1, 2]),
    "average_pool_pads": one_op("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 0, 1, 2]),
    "average_pool_counted": one_op(
        "AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 0, 1, 2], count_include_pad=1
    ),
    "average_pool_ceil": one_op(
        "AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1
    ),
    "average_pool_ceil_counted": one_op(
        "AveragePool",
        IMAGE,
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        ceil_mode=1,
        count_include_pad=1,
        opset=19,
    ),
    "average_pool_same": one_op(
        "AveragePool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "average_pool_1d": one_op("AveragePool", SIGNAL, kernel_shape=[3], pads=[1, 1]),
    "max_pool_dilated": one_op(
        "MaxPool", IMAGE, kernel_shape=[3, 2], dilations=[2, 3], pads=[2, 1, 1, 1], strides=[2, 1]
    ),
    "max_pool_dilated_1d": one_op("MaxPool", SIGNAL, kernel_shape=[3], dilations=[4]),
    "average_pool_dilated": one_op(
        "AveragePool", IMAGE, kernel_shape=[2, 3], dilations=[3, 1], pads=[0, 1, 1, 0], opset=19
    ),
    "global_average": one_op("GlobalAveragePool", IMAGE),
    "global_average_1d": one_op("GlobalAveragePool", SIGNAL),
    "global_average_3d": one_op("GlobalAveragePool", f(2, 3, 4, 2, 3)),
    "global_max": one_op("GlobalMaxPool", IMAGE),
}
NORMS = {
    "batch_norm": one_op("BatchNormalization", IMAGE, f(4), f(4), f(4), positive(4), epsilon=1e-3),
    "batch_norm_9": one_op("BatchNormalization", IMAGE, f(4), f(4), f(4), positive(4), opset=9),
    "batch_norm_row": one_op("BatchNormalization", ROW, f(6), f(6), f(6), positive(6)),
    "batch_norm_1d": one_op("BatchNormalization", SIGNAL, f(4), f(4), f(4), positive(4)),
    "batch_norm_3d": one_op("BatchNormalization", f(2, 3, 2, 4, 3), f(3), f(3), f(3), positive(3)),
    "instance_norm": one_op("InstanceNormalization", IMAGE, f(4), f(4), epsilon=1e-2),
    "instance_norm_1d": one_op("InstanceNormalization", SIGNAL, f(4), f(4)),
    "layer_norm": one_op("LayerNormalization", ROW, f(6), f(6)),
    "layer_norm_no_bias": one_op("LayerNormalization", ROW, f(6), epsilon=1e-2),
    "layer_norm_axes": one_op("LayerNormalization", f(2, 3, 4), f(3, 4), f(3, 4), axis=1),
    "layer_norm_parts": one_op(
        "LayerNormalization", ROW, f(6), f(6), outputs=("y", "mean", "inverse")
    ),
    "rms_norm": one_op("RMSNormalization", ROW, f(6), opset=23),
    "rms_norm_axes": one_op("RMSNormalization", IMAGE, f(4, 9, 7), opset=23, axis=1),
    "lp_norm": one_op("LpNormalization", ROW),
    "lp_norm_1": one_op("LpNormalization", IMAGE, p=1, axis=1),
    "group_norm": one_op("GroupNormalization", IMAGE, f(4), f(4), num_groups=2, opset=21),
    "lrn_wide": one_op("LRN", f(2, 3, 3, 4), size=9, alpha=2.0),
    "lrn": one_op("LRN", f(2, 7, 3, 4), size=5, alpha=0.3, beta=0.6, bias=1.5),
}
CASES = {**CONVOLUTIONS, **PRODUCTS, **POOLS, **NORMS}


@pytest.mark.parametrize("case", CASES)
def test_op_computes_what_onnx_runtime_does(case):
    assert_like_runtime(CASES[case], {"x": feed_of(CASES[case])})


def test_local_response_of_signals_is_that_of_images_of_one_column() -> None:
    """ONNX Runtime has it for images only."""
    signal = f(2, 7, 3)
    found, wanted = (
        evaluate(imported(one_op("LRN", x, size=3, alpha=0.3)), {"x": x})["y"]
        for x in (signal, signal[..., None])
    )
    np.testing.assert_array_equal(found, wanted[..., 0])
