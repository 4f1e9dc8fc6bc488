"""Models of dynamic quantization (ONNX Runtime's `quantize_dynamic`), as float models.

Their layers multiply codes: `DynamicQuantizeLinear` computes a scale from each input, then
`MatMulInteger` or `ConvInteger`, a cast, and a product with both scales follow. Each becomes the
float layer with dequantized weights, on the input itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qgraph.foreign import Proto
from qgraph.frontends.onnx.editing import ModelEditor
from qgraph.ir.types import Array

DYNAMIC = "DynamicQuantizeLinear"
FLOAT_OPS: Mapping[str, str] = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
LSTM, LSTM_DOMAIN = "DynamicQuantizeLSTM", "com.microsoft"
LSTM_INPUTS = 8  # of the float op; the scales and zero points of W and R follow
OPS = frozenset((DYNAMIC, LSTM, *FLOAT_OPS))


def float_layers(editor: ModelEditor) -> int:
    """Replace the layers of dynamic quantization by float ones, and count them."""
    nodes = list(editor.graph.node)
    made = sum(_Layers(editor, node).replace() for node in nodes if node.op_type == DYNAMIC)
    made += sum(_lstm(editor, node) for node in nodes if node.op_type == LSTM)
    return made


class _Layers:
    """The layers behind one dynamic quantizer."""

    def __init__(self, editor: ModelEditor, quantizer: Proto) -> None:
        self.editor, self.quantizer = editor, quantizer
        self.codes, self.scale, self.zero = (*quantizer.output, "", "")[:3]

    def replace(self) -> int:
        """Make all layers float ones if nothing else reads the codes or the scale."""
        users = self.editor.users
        layers = [node for node in users(self.codes) if node.op_type in FLOAT_OPS]
        if len(layers) < len(users(self.codes)) or not layers:
            return 0
        found = [self._scaled(layer) for layer in layers]
        weights = [self._weights(layer, found[i]) for i, layer in enumerate(layers)]
        if any(part is None for part in (*found, *weights)) or not self._is_alone(layers, found):
            return 0
        x = self.quantizer.input[0]
        for layer, scaled, values in zip(layers, found, weights, strict=True):
            assert scaled is not None and values is not None
            name = self.editor.add_constant(values, layer.input[1])
            layer.op_type = FLOAT_OPS[layer.op_type]
            del layer.input[:]
            layer.input.extend((x, name))
            (cast,) = users(layer.output[0])
            self.editor.as_identity(cast)
            self.editor.as_identity(scaled, cast.output[0])
        for unused in (*users(self.scale), self.quantizer):
            self.editor.forget(unused)
        return len(layers)

    def _scaled(self, layer: Proto) -> Proto | None:
        """The product of a layer's sums and both scales."""
        editor = self.editor
        casts = editor.users(layer.output[0])
        if len(casts) != 1 or casts[0].op_type != "Cast" or editor.is_output(layer.output[0]):
            return None
        products = editor.users(casts[0].output[0])
        if len(products) != 1 or products[0].op_type != "Mul":
            return None
        return products[0] if self._factor(products[0], casts[0].output[0]) is not None else None

    def _factor(self, product: Proto, value: str) -> Array | None:
        """The scale of the weights in a product of `value` and both scales."""
        editor = self.editor
        (scales,) = [name for name in product.input if name != value] or ("",)
        maker = editor.maker(scales)
        if maker is None or maker.op_type != "Mul" or self.scale not in maker.input:
            return None
        (other,) = [name for name in maker.input if name != self.scale] or ("",)
        return editor.array(other)

    def _weights(self, layer: Proto, scaled: Proto | None) -> Array | None:
        """Dequantized weights."""
        editor = self.editor
        slots = (*layer.input, "", "")[:4]
        codes = editor.array(slots[1])
        zero = editor.array(slots[3]) if slots[3] else np.zeros((), np.int64)
        if scaled is None or codes is None or zero is None or slots[2] not in ("", self.zero):
            return None
        (cast,) = editor.users(layer.output[0])
        factor = self._factor(scaled, cast.output[0])
        assert factor is not None
        convolves = layer.op_type == "ConvInteger"
        channels = codes.shape[0] if convolves else codes.shape[-1]
        if factor.size not in (1, channels) or zero.size not in (1, channels):
            return None
        shape = (-1, *(1,) * (codes.ndim - 1)) if convolves else (-1,)
        steps = codes.astype(np.float64) - zero.astype(np.float64).reshape(shape)
        values: Array = (steps * factor.astype(np.float64).reshape(shape)).astype(np.float32)
        return values

    def _is_alone(self, layers: Sequence[Proto], products: Sequence[Proto | None]) -> bool:
        """Whether only these layers use the scale and the zero point."""
        editor = self.editor
        if any(editor.is_output(name) for name in (self.codes, self.scale, self.zero)):
            return False
        if any(all(user is not layer for layer in layers) for user in editor.users(self.zero)):
            return False
        return all(
            any(user is product for product in products)
            for scales in editor.users(self.scale)
            for user in editor.users(scales.output[0])
        )


def _lstm(editor: ModelEditor, node: Proto) -> int:
    """An LSTM with quantized weights [directions, inputs, gates], as the float op."""
    slots = [*node.input, *[""] * (LSTM_INPUTS + 4 - len(node.input))]
    found = []
    for place, (scale, zero) in {1: (8, 9), 2: (10, 11)}.items():
        codes, factor = editor.array(slots[place]), editor.array(slots[scale])
        offset = editor.array(slots[zero]) if slots[zero] else np.zeros(1)
        if codes is None or factor is None or offset is None:
            return 0
        per = (codes.shape[0], 1, -1)  # scales are [directions] or [directions, gates]
        steps = codes.astype(np.float64) - offset.astype(np.float64).reshape(per)
        values = steps * factor.astype(np.float64).reshape(per)
        found.append(values.transpose(0, 2, 1).astype(np.float32))
    names = [editor.add_constant(v, slots[place]) for place, v in zip((1, 2), found, strict=True)]
    slots[1:3] = names
    while len(slots) > LSTM_INPUTS or not slots[-1]:
        slots.pop()
    node.op_type, node.domain = "LSTM", ""
    del node.input[:]
    node.input.extend(slots)
    return 1
