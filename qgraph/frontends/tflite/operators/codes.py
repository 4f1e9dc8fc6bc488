"""Constants in float16 or as codes, which are read as float32."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qgraph.frontends.tflite.operators.translator import Translator, renamed

OPERATORS: Mapping[str, Translator] = MappingProxyType({"DEQUANTIZE": renamed("Identity")})
