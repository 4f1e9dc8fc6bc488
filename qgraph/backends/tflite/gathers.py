"""Entries of constant tables by index.

TFLM has GATHER for int8 but not for int16. Codes of 16 bits are therefore gathered as two tables of
int8, of high and of low bytes, and added: `code = 2^8 * high + low`.
"""

from __future__ import annotations

from qgraph.backends.tflite.arithmetic import BYTES
from qgraph.backends.tflite.model_builder import QuantizedScale
from qgraph.backends.tflite.writer import TensorWriter
from qgraph.ir.types import Codes


def gathered(writer: TensorWriter, name: str, table: str, entries: Codes, index: int) -> int:
    """A tensor of the program from the rows of a table, whose codes are `entries`.

    table: its name. index: an int32 tensor with numbers of rows.
    """
    if not writer.arithmetic.gathers_bytes_only:
        held = writer.as_stored(entries + writer.zero(name))
        rows = writer.model.constant(table, held, writer.scale_of(name))
        return _gather(writer, rows, index, writer.add_tensor(name))
    exponent, parts = writer.exponent(name), []
    for stem, codes, scale in (
        ("high", entries >> BYTES.bits, QuantizedScale(exponent - BYTES.bits)),
        ("low", entries & (1 << BYTES.bits) - 1, QuantizedScale(exponent, BYTES.low)),
    ):
        held = (codes + scale.zero).astype(BYTES.type)
        rows = writer.model.constant(f"{table}/{stem}", held, scale)
        shape = writer.tensors[name].shape
        byte = writer.model.tensor(f"{name}/{stem} byte", shape, BYTES.type, scale)
        part = writer.add_tensor(name, f"{name}/{stem}")
        _gather(writer, rows, index, byte)
        parts.append(writer.model.operator("QUANTIZE", [byte], part, "QuantizeOptions", 2))
    made, fields = writer.add_tensor(name), writer.sum_fields
    return writer.model.operator("ADD", parts, made, "AddOptions", 2, **fields)


def _gather(writer: TensorWriter, rows: int, index: int, made: int) -> int:
    return writer.model.operator("GATHER", [rows, index], made, "GatherOptions", 2, Axis=0)
