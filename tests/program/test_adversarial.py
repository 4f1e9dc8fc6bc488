"""Test cases of whole networks besides samples."""

import numpy as np

from qgraph.program import run
from qgraph.program.adversarial import adversarial_entries
from tests.helpers.generators.programs import random_program


def test_entries_are_extreme_and_the_same_each_time() -> None:
    program = random_program(4, 8)
    found = adversarial_entries(program, seed=3)
    again = adversarial_entries(program, seed=3)
    assert list(found) == ["lowest", "highest", "alternating", "zero", "random extremes", "random"]
    for label, entries in found.items():
        run(program, entries)  # which refuses codes out of range
        for name, codes in entries.items():
            tensor = program.tensors[name]
            assert codes.shape == tensor.shape
            np.testing.assert_array_equal(codes, again[label][name])
    for entry in program.entries:
        tensor = program.tensors[entry.tensor]
        assert {*found["random extremes"][entry.tensor].flat} == {tensor.low, tensor.high}
        assert {*found["alternating"][entry.tensor].flat} == {tensor.low, tensor.high}
        assert (found["lowest"][entry.tensor] == tensor.low).all()
        assert (found["highest"][entry.tensor] == tensor.high).all()
