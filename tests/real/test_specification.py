"""Real networks by the interpreter that was written from docs/integer_program.md alone."""

from __future__ import annotations

import numpy as np
import pytest

from qgraph.backends.engine import engine_file
from qgraph.errors import UnsupportedError
from qgraph.numerics import dequantize
from qgraph.program import lower
from tests.helpers import spec_file, spec_interpreter, spec_rules
from tests.real.test_real_networks import NETWORKS, PROFILES, one, quantized, samples

pytestmark = pytest.mark.real


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_tensor_is_that_of_the_reference(name, profile) -> None:
    result = quantized(name, profile)
    feeds = one(result.graph, samples(name))
    shapes = {n: (result.graph.types[n].shape[0], *x.shape[1:]) for n, x in feeds.items()}
    try:
        program = lower(result.graph, shapes)
    except UnsupportedError as error:
        pytest.skip(str(error))
    file = spec_file.parse(engine_file(program))
    spec_interpreter.check_order(file)
    spec_rules.check(file)
    shown = [step.output for step in program.steps if step.output in result.graph.nodes]
    sources = {entry.source for entry in program.entries}
    wanted = result.reference().run(feeds, {*shown, *sources})
    codes = {}
    for entry in program.entries:
        q, source = entry.spec, wanted[entry.source]
        codes[entry.tensor] = spec_interpreter.to_codes(
            source, q.bits, q.signed, q.exponent, q.rounding, q.overflow
        )
    found = spec_interpreter.run(file, codes, shown)
    for tensor in shown:
        np.testing.assert_array_equal(found[tensor], wanted[tensor].codes, tensor)
    for tensor in program.exits:
        numbers = spec_interpreter.to_numbers(found[tensor], program.tensors[tensor].exponent)
        np.testing.assert_array_equal(numbers, dequantize(wanted[tensor]))
