"""Places of quantizers: docs/numerics.md section 3, topology by topology."""

import numpy as np

from qgraph.ir.types import TensorType
from tests.helpers.layers import WINDOW, Net, check_inserted
from tests.helpers.quantized import INT32_BIAS


def test_convolution_bias_relu6():
    net = Net(3, 3, 4)
    c = net.op("bias_add", net.conv(net.x, "c"), net.const("b", 4), name="u")
    y = net.op("relu6", c, name="r")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %c/w/q8 = quantize(%c/w) {spec=<s8 weight>}
        %c = conv2d(%x/q8, %c/w/q8)
        %c/q16 = quantize(%c) {spec=<s16 internal>}
        %b/q16 = quantize(%b) {spec=<s16 bias>}
        %u = bias_add(%c/q16, %b/q16)
        %r = relu6(%u)
        %r/q8 = quantize(%r) {spec=<u8 activation>}
        return "y" = %r/q8
    """
    check_inserted(net, y, golden)


def test_layer_without_bias():
    net = Net()
    y = net.op("relu", net.fc(net.x, "f"), name="r")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %f/w/q8 = quantize(%f/w) {spec=<s8 weight>}
        %f = matmul(%x/q8, %f/w/q8)
        %f/q16 = quantize(%f) {spec=<s16 internal>}
        %r = relu(%f/q16)
        %r/q8 = quantize(%r) {spec=<u8 activation>}
        return "y" = %r/q8
    """
    check_inserted(net, y, golden)


def test_sum_of_signed_and_unsigned():
    net = Net()
    a = net.op("relu", net.fc(net.x, "a"), name="ra")
    total = net.op("add", a, net.fc(net.x, "b"), name="s")
    y = net.op("relu", total, name="r")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %a/w/q8 = quantize(%a/w) {spec=<s8 weight>}
        %a = matmul(%x/q8, %a/w/q8)
        %a/q16 = quantize(%a) {spec=<s16 internal>}
        %ra = relu(%a/q16)
        %ra/q8 = quantize(%ra) {spec=<u8 activation>}
        %b/w/q8 = quantize(%b/w) {spec=<s8 weight>}
        %b = matmul(%x/q8, %b/w/q8)
        %b/q16 = quantize(%b) {spec=<s16 internal>}
        %b/q8 = quantize(%b/q16) {spec=<s8 activation>}
        %s = add(%ra/q8, %b/q8)
        %r = relu(%s)
        %r/q8 = quantize(%r) {spec=<u8 activation>}
        return "y" = %r/q8
    """
    check_inserted(net, y, golden)


def test_leaky_relu_behind_a_layer():
    net = Net()
    u = net.op("bias_add", net.fc(net.x, "f"), net.const("b", 4), name="u")
    y = net.leaky(u)
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %f/w/q8 = quantize(%f/w) {spec=<s8 weight>}
        %f = matmul(%x/q8, %f/w/q8)
        %f/q16 = quantize(%f) {spec=<s16 internal>}
        %b/q16 = quantize(%b) {spec=<s16 bias>}
        %u = bias_add(%f/q16, %b/q16)
        %u/q16 = quantize(%u) {spec=<s16 internal>}
        %alpha/q16 = quantize(%alpha) {spec=<s16 constant>}
        %v = mul(%u/q16, %alpha/q16)
        %v/q16 = quantize(%v) {spec=<s16 internal>}
        %m = maximum(%u/q16, %v/q16)
        %m/q8 = quantize(%m) {spec=<s8 activation>}
        return "y" = %m/q8
    """
    check_inserted(net, y, golden)


def test_leaky_relu_behind_a_concat():
    net = Net()
    parts = net.fc(net.x, "a"), net.op("relu", net.x, name="r")
    y = net.leaky(net.op("concat", *parts, name="c", axis=1))
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %a/w/q8 = quantize(%a/w) {spec=<s8 weight>}
        %a = matmul(%x/q8, %a/w/q8)
        %a/q16 = quantize(%a) {spec=<s16 internal>}
        %a/q8 = quantize(%a/q16) {spec=<s8 activation>}
        %r = relu(%x)
        %r/q8 = quantize(%r) {spec=<s8 input>}
        %c = concat(%a/q8, %r/q8) {axis=1}
        %c/q16 = quantize(%c) {spec=<s16 internal>}
        %alpha/q16 = quantize(%alpha) {spec=<s16 constant>}
        %v = mul(%c/q16, %alpha/q16)
        %v/q16 = quantize(%v) {spec=<s16 internal>}
        %m = maximum(%c/q16, %v/q16)
        %m/q8 = quantize(%m) {spec=<s8 activation>}
        return "y" = %m/q8
    """
    check_inserted(net, y, golden)


def test_leaky_relu_without_an_internal_stage():
    net = Net()
    y = net.leaky(net.fc(net.x, "f"))
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %f/w/q8 = quantize(%f/w) {spec=<s8 weight>}
        %f = matmul(%x/q8, %f/w/q8)
        %f/q16 = quantize(%f) {spec=<s16 internal>}
        %alpha/q16 = quantize(%alpha) {spec=<s16 constant>}
        %v = mul(%f/q16, %alpha/q16)
        %v/q16 = quantize(%v) {spec=<s16 internal>}
        %m = maximum(%f/q16, %v/q16)
        %m/q8 = quantize(%m) {spec=<s8 activation>}
        return "y" = %m/q8
    """
    check_inserted(net, y, golden, INT32_BIAS)


def test_average_pool():
    net = Net(3, 3, 4)
    r = net.graph.const(np.full((3, 3, 4, 1), 1 / 9, np.float32), "1/9")
    window = {**WINDOW, "padding": "valid", "pool": True}
    y = net.op("depthwise_conv2d", net.op("relu", net.x, name="r"), r, name="p", **window)
    golden = """
        %r = relu(%x)
        %r/q8 = quantize(%r) {spec=<u8 input>}
        %"1/9/q8" = quantize(%"1/9") {spec=<u8 constant>}
        %p = depthwise_conv2d(%r/q8, %"1/9/q8") {pool=True}
        %p/q8 = quantize(%p) {spec=<u8 activation>}
        return "y" = %p/q8
    """
    check_inserted(net, y, golden)


def test_average_pool_with_a_map_of_reciprocals():
    net = Net(3, 3, 4)
    ones = net.graph.const(np.ones((2, 2, 4, 1), np.float32), "ones")
    total = net.op("depthwise_conv2d", net.x, ones, name="s", **WINDOW, pool=True)
    reciprocals = net.const("map", 1, 3, 3, 1, low=0.25)
    y = net.op("mul", total, reciprocals, name="p", pool=True)
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %ones/q1 = quantize(%ones) {spec=<u1 constant>}
        %s = depthwise_conv2d(%x/q8, %ones/q1) {pool=True}
        %map/q8 = quantize(%map) {spec=<u8 constant>}
        %p = mul(%s, %map/q8) {pool=True}
        %p/q8 = quantize(%p) {spec=<s8 activation>}
        return "y" = %p/q8
    """
    check_inserted(net, y, golden)


def test_concat_gives_all_members_a_sign():
    net = Net()
    a = net.op("relu", net.fc(net.x, "a"), name="ra")
    y = net.op("concat", a, net.fc(net.x, "b"), name="c", axis=1)
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %a/w/q8 = quantize(%a/w) {spec=<s8 weight>}
        %a = matmul(%x/q8, %a/w/q8)
        %a/q16 = quantize(%a) {spec=<s16 internal>}
        %ra = relu(%a/q16)
        %ra/q8 = quantize(%ra) {spec=<s8 activation>}
        %b/w/q8 = quantize(%b/w) {spec=<s8 weight>}
        %b = matmul(%x/q8, %b/w/q8)
        %b/q16 = quantize(%b) {spec=<s16 internal>}
        %b/q8 = quantize(%b/q16) {spec=<s8 activation>}
        %c = concat(%ra/q8, %b/q8) {axis=1}
        return "y" = %c
    """
    check_inserted(net, y, golden)


def test_max_pool_moves_codes():
    net = Net(3, 3, 4)
    r = net.op("relu", net.conv(net.x, "c"), name="r")
    window = {"ksize": (2, 2), "strides": (1, 1), "padding": "same"}
    y = net.conv(net.op("max_pool", r, name="m", **window), "d")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %c/w/q8 = quantize(%c/w) {spec=<s8 weight>}
        %c = conv2d(%x/q8, %c/w/q8)
        %c/q16 = quantize(%c) {spec=<s16 internal>}
        %r = relu(%c/q16)
        %r/q8 = quantize(%r) {spec=<u8 activation>}
        %m = max_pool(%r/q8) {ksize=(2, 2), padding="same"}
        %d/w/q8 = quantize(%d/w) {spec=<s8 weight>}
        %d = conv2d(%m, %d/w/q8)
        %d/q16 = quantize(%d) {spec=<s16 internal>}
        %d/q8 = quantize(%d/q16) {spec=<s8 activation>}
        return "y" = %d/q8
    """
    check_inserted(net, y, golden)


def test_table():
    net = Net()
    y = net.op("swish", net.fc(net.x, "f"), name="s")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %f/w/q8 = quantize(%f/w) {spec=<s8 weight>}
        %f = matmul(%x/q8, %f/w/q8)
        %f/q16 = quantize(%f) {spec=<s16 internal>}
        %f/q8 = quantize(%f/q16) {spec=<s8 activation>}
        %s = lookup(%f/q8) {domain=<s8 activation>, function="swish", spec=<s8 activation>}
        return "y" = %s
    """
    check_inserted(net, y, golden)


def test_product_of_two_tensors():
    net = Net()
    gate = net.op("sigmoid", net.fc(net.x, "b"), name="g")
    y = net.op("mul", net.fc(net.x, "a"), gate, name="m")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %a/w/q8 = quantize(%a/w) {spec=<s8 weight>}
        %a = matmul(%x/q8, %a/w/q8)
        %a/q16 = quantize(%a) {spec=<s16 internal>}
        %a/q8 = quantize(%a/q16) {spec=<s8 activation>}
        %b/w/q8 = quantize(%b/w) {spec=<s8 weight>}
        %b = matmul(%x/q8, %b/w/q8)
        %b/q16 = quantize(%b) {spec=<s16 internal>}
        %b/q8 = quantize(%b/q16) {spec=<s8 activation>}
        %g = lookup(%b/q8) {domain=<s8 activation>, function="sigmoid", spec=<u8 activation>}
        %m = mul(%a/q8, %g)
        %m/q8 = quantize(%m) {spec=<s8 activation>}
        return "y" = %m/q8
    """
    check_inserted(net, y, golden)


def test_softmax_stays_float():
    net = Net()
    y = net.op("softmax", net.fc(net.x, "f"), name="s")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %f/w/q8 = quantize(%f/w) {spec=<s8 weight>}
        %f = matmul(%x/q8, %f/w/q8)
        %f/q16 = quantize(%f) {spec=<s16 internal>}
        %f/q8 = quantize(%f/q16) {spec=<s8 activation>}
        %s = softmax(%f/q8)
        return "y" = %s
    """
    check_inserted(net, y, golden, reasons=[("s", "stays float: softmax is a float op")])


def test_an_unknown_op_in_the_middle():
    net = Net()
    attrs = {"kind": "Strange", "types": (TensorType("float32", (None, 4)),), "source": None}
    o = net.op("opaque", net.op("relu", net.fc(net.x, "a"), name="r"), name="o", **attrs)
    y = net.fc(o, "b")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %a/w/q8 = quantize(%a/w) {spec=<s8 weight>}
        %a = matmul(%x/q8, %a/w/q8)
        %a/q16 = quantize(%a) {spec=<s16 internal>}
        %r = relu(%a/q16)
        %r/q8 = quantize(%r) {spec=<u8 activation>}
        %o = opaque(%r/q8) {kind="Strange", source=None, types=(float32[?,4],)}
        %o/q8 = quantize(%o) {spec=<s8 input>}
        %b/w/q8 = quantize(%b/w) {spec=<s8 weight>}
        %b = matmul(%o/q8, %b/w/q8)
        %b/q16 = quantize(%b) {spec=<s16 internal>}
        %b/q8 = quantize(%b/q16) {spec=<s8 activation>}
        return "y" = %b/q8
    """
    check_inserted(net, y, golden, reasons=[("o", "stays float: `Strange` is not supported")])


def test_a_layer_with_two_users():
    net = Net()
    u = net.fc(net.x, "a")
    y = net.op("add", net.op("relu", u, name="r"), u, name="s")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %a/w/q8 = quantize(%a/w) {spec=<s8 weight>}
        %a = matmul(%x/q8, %a/w/q8)
        %a/q16 = quantize(%a) {spec=<s16 internal>}
        %r = relu(%a/q16)
        %r/q8 = quantize(%r) {spec=<u8 activation>}
        %a/q8 = quantize(%a/q16) {spec=<s8 activation>}
        %s = add(%r/q8, %a/q8)
        %s/q8 = quantize(%s) {spec=<s8 activation>}
        return "y" = %s/q8
    """
    check_inserted(net, y, golden)


def test_bias_in_the_accumulator():
    net = Net()
    u = net.op("bias_add", net.fc(net.x, "f"), net.const("b", 4), name="u")
    y = net.op("relu", u, name="r")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %f/w/q8 = quantize(%f/w) {spec=<s8 weight>}
        %f = matmul(%x/q8, %f/w/q8)
        %b/q32 = quantize(%b) {spec=<s32 bias>}
        %u = bias_add(%f, %b/q32)
        %r = relu(%u)
        %r/q8 = quantize(%r) {spec=<u8 activation>}
        return "y" = %r/q8
    """
    check_inserted(net, y, golden, INT32_BIAS)


def test_what_is_left_of_a_batch_norm():
    net = Net(3, 3, 4)
    y = net.conv(net.x, "scale", "depthwise_conv2d", batch_norm=True)
    y = net.op("bias_add", y, net.const("b", 4), name="bn")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %scale/w/q16 = quantize(%scale/w) {spec=<s16 scale>}
        %scale = depthwise_conv2d(%x/q8, %scale/w/q16) {batch_norm=True}
        %scale/q16 = quantize(%scale) {spec=<s16 internal>}
        %b/q16 = quantize(%b) {spec=<s16 bias>}
        %bn = bias_add(%scale/q16, %b/q16)
        %bn/q8 = quantize(%bn) {spec=<s8 activation>}
        return "y" = %bn/q8
    """
    check_inserted(net, y, golden)


def test_padding_with_a_value_is_on_no_grid():
    net = Net(3, 3, 4)
    pads = {"paddings": ((0, 0), (1, 1), (0, 0), (0, 0)), "value": 0.5}
    y = net.conv(net.op("pad", net.conv(net.x, "c"), name="p", **pads), "d")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %c/w/q8 = quantize(%c/w) {spec=<s8 weight>}
        %c = conv2d(%x/q8, %c/w/q8)
        %c/q16 = quantize(%c) {spec=<s16 internal>}
        %c/q8 = quantize(%c/q16) {spec=<s8 activation>}
        %p = pad(%c/q8) {paddings=((0, 0), (1, 1), (0, 0), (0, 0)), value=0.5}
        %p/q8 = quantize(%p) {spec=<s8 input>}
        %d/w/q8 = quantize(%d/w) {spec=<s8 weight>}
        %d = conv2d(%p/q8, %d/w/q8)
        %d/q16 = quantize(%d) {spec=<s16 internal>}
        %d/q8 = quantize(%d/q16) {spec=<s8 activation>}
        return "y" = %d/q8
    """
    check_inserted(
        net, y, golden, reasons=[("p", "stays float: its padding value 0.5 is not a code")]
    )
