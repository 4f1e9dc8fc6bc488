"""Real networks by the interpreter that was written from docs/integer_program.md alone."""

from __future__ import annotations

import numpy as np
import pytest

from qgraph.backends.engine import engine_file
from qgraph.numerics import dequantize
from tests.helpers import spec_file, spec_interpreter, spec_rules
from tests.helpers.real_networks import INTEGER, PROFILES, integer_program

pytestmark = pytest.mark.real


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", INTEGER)
def test_every_tensor_is_that_of_the_reference(name, profile) -> None:
    result, program, feeds = integer_program(name, profile)
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
