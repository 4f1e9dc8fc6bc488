"""Bits of quantizers at the ends of a network."""

from qgraph.quant.profile import parse_profile
from tests.helpers.layers import Net, check_inserted
from tests.helpers.quantized import INT4

WIDE_OUTPUTS = parse_profile({"name": "wide", "bits": {"output": 16}}, "wide")


def test_first_and_last_layers_keep_8_bits():
    net = Net()
    y = net.fc(net.fc(net.fc(net.x, "first"), "middle"), "last")
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %first/w/q8 = quantize(%first/w) {spec=<s8 weight>}
        %first = matmul(%x/q8, %first/w/q8)
        %first/q16 = quantize(%first) {spec=<s16 internal>}
        %first/q8 = quantize(%first/q16) {spec=<s8 activation>}
        %middle/w/q4 = quantize(%middle/w) {spec=<s4 weight>}
        %middle = matmul(%first/q8, %middle/w/q4)
        %middle/q16 = quantize(%middle) {spec=<s16 internal>}
        %middle/q8 = quantize(%middle/q16) {spec=<s8 activation>}
        %last/w/q8 = quantize(%last/w) {spec=<s8 weight>}
        %last = matmul(%middle/q8, %last/w/q8)
        %last/q16 = quantize(%last) {spec=<s16 internal>}
        %last/q8 = quantize(%last/q16) {spec=<s8 activation>}
        return "y" = %last/q8
    """
    check_inserted(net, y, golden, INT4)


def test_a_table_before_moves_has_the_bits_of_outputs():
    net = Net()
    y = net.op("sigmoid", net.fc(net.x, "f"), name="s")
    y = net.op("expand_dims", y, name="row", axis=1)
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %f/w/q8 = quantize(%f/w) {spec=<s8 weight>}
        %f = matmul(%x/q8, %f/w/q8)
        %f/q16 = quantize(%f) {spec=<s16 internal>}
        %f/q8 = quantize(%f/q16) {spec=<s8 activation>}
        %s = lookup(%f/q8) {domain=<s8 activation>, function="sigmoid", spec=<u16 activation>}
        %row = expand_dims(%s) {axis=1}
        return "y" = %row
    """
    check_inserted(net, y, golden, WIDE_OUTPUTS)


def test_a_layer_before_moves_has_the_bits_of_outputs():
    net = Net()
    y = net.op("expand_dims", net.fc(net.x, "f"), name="row", axis=1)
    golden = """
        %x/q8 = quantize(%x) {spec=<s8 input>}
        %f/w/q8 = quantize(%f/w) {spec=<s8 weight>}
        %f = matmul(%x/q8, %f/w/q8)
        %f/q16 = quantize(%f) {spec=<s16 internal>}
        %f/q16_1 = quantize(%f/q16) {spec=<s16 activation>}
        %row = expand_dims(%f/q16_1) {axis=1}
        return "y" = %row
    """
    check_inserted(net, y, golden, WIDE_OUTPUTS)
