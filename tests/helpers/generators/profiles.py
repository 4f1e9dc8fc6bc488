"""Random targets."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from qgraph.backends.tflite.arithmetic import ARITHMETICS
from qgraph.ir.types import ROUNDINGS
from qgraph.quant.profile import Bits, Profile, load_profile

BITS = st.sampled_from([8, 8, 8, 4, 2, 3, 6, 12, 16])
WIDE = st.sampled_from([16, 16, 12, 8, 10])
# Targets with forms of their own: random profiles seldom have exactly their roundings.
EXECUTORS = tuple(arithmetic.name for arithmetic in ARITHMETICS)
MAYBE_WIDE = st.one_of(st.none(), WIDE)


@st.composite
def profiles(draw: Callable) -> Profile:
    """A target: bits, roundings, saturation or wrapping, scales for each channel."""
    if draw(st.integers(0, 5)) == 5:
        return replace(
            load_profile(draw(st.sampled_from(EXECUTORS))),
            per_channel=draw(st.booleans()),
            signed_activations=draw(st.booleans()),
        )
    internal = draw(MAYBE_WIDE)
    bits = Bits(
        input=draw(BITS),
        activation=draw(BITS),
        weight=draw(BITS),
        weight_ends=draw(BITS),
        bias=32 if internal is None else draw(WIDE),
        internal=internal,
        output=draw(MAYBE_WIDE),
        table=draw(st.one_of(st.none(), st.sampled_from([8, 10, 16]))),
        norm=draw(MAYBE_WIDE),
    )
    wraps = draw(st.booleans())
    return Profile(
        "drawn",
        bits=bits,
        per_channel=draw(st.booleans()),
        signed_activations=draw(st.booleans()),
        rounding=draw(st.sampled_from(ROUNDINGS)),
        rounding_additions=draw(st.one_of(st.none(), st.sampled_from(ROUNDINGS))),
        rounding_products=draw(st.one_of(st.none(), st.sampled_from(ROUNDINGS))),
        rounding_constants=draw(st.one_of(st.none(), st.sampled_from(ROUNDINGS))),
        rounding_inputs=draw(st.one_of(st.none(), st.sampled_from(ROUNDINGS))),
        overflow=draw(st.sampled_from(["saturate", "saturate", "wrap"])),
        accumulator_bits=draw(st.sampled_from([12, 16, 24])) if wraps else 64,
        accumulator_wraps=wraps,
    )
