"""Array kernels: native code if the extension is built, numpy otherwise.

Each kernel has a numpy version (`kernels/plain.py`) with the same arguments and the same results,
to the last bit. It is used if the extension is not built, and tests compare with it.

Arrays are float32 of any layout; an array that is not C-contiguous is copied first. Another dtype
raises TypeError, because a silent conversion would round. Results depend neither on the number of
threads nor on the CPU.
"""

from __future__ import annotations

from qgraph.kernels.convolutions import conv2d, depthwise_conv2d
from qgraph.kernels.native import (
    INSTRUCTION_SETS,
    NATIVE_LEVELS,
    backend,
    instruction_set,
    native_actor,
    native_broadcast,
    native_engine,
    not_available,
    set_threads,
    stay_on_calling_thread,
    use_instruction_set,
)
from qgraph.kernels.quantizers import (
    MAX_FRACTION_BITS,
    quantize,
    quantize_gradients,
    round_significand,
    stage,
)
from qgraph.kernels.statistics import (
    channel_squares,
    channel_sums,
    histogram,
    minmax,
    squares,
    tails,
)
from qgraph.kernels.weight_rounding import descend, round_in_turn

__all__ = [
    "INSTRUCTION_SETS",
    "MAX_FRACTION_BITS",
    "NATIVE_LEVELS",
    "backend",
    "channel_squares",
    "channel_sums",
    "conv2d",
    "depthwise_conv2d",
    "descend",
    "histogram",
    "instruction_set",
    "minmax",
    "native_actor",
    "native_broadcast",
    "native_engine",
    "not_available",
    "quantize",
    "quantize_gradients",
    "round_in_turn",
    "round_significand",
    "set_threads",
    "squares",
    "stage",
    "stay_on_calling_thread",
    "tails",
    "use_instruction_set",
]
