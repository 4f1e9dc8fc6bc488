"""Real networks by the integer engine: the outputs of the integer reference, to the bit."""

import numpy as np
import pytest

from qgraph import kernels
from qgraph.ir.reading import kind_of
from qgraph.program import segments
from qgraph.program.islands import islands
from tests.helpers.real_networks import IN_FLOAT, INTEGER, PROFILES, integer_program

if kernels.native_engine() is None:
    pytest.skip("the native extension isn't built", allow_module_level=True)

from qgraph.backends.engine import Engine, levels
from qgraph.runtime import Session

pytestmark = pytest.mark.real


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", [*INTEGER, IN_FLOAT])
def test_outputs_are_those_of_the_reference(name, profile) -> None:
    result, program, feeds = integer_program(name, profile)
    wanted = result.reference().outputs(feeds)
    for level in levels():
        for threads, fuse in ((1, True), (2, True), (1, False)):
            if level == "plain" and not fuse:
                continue  # slow, and small networks see it
            engines = [Engine.of(part, threads, level, fuse) for part in segments(program)]
            found = Session(result.graph, program, *engines).run(feeds)
            assert found.keys() == wanted.keys()
            for output, array in wanted.items():
                np.testing.assert_array_equal(found[output], array, f"{level} {threads} {fuse}")


@pytest.mark.parametrize("profile", PROFILES)
def test_float_ops_inside_begin_another_segment(profile) -> None:
    result, program, _ = integer_program(IN_FLOAT, profile)
    ops = {kind_of(node) for island in islands(result.graph, program) for node in island.nodes}
    assert program.has_islands and "pow" in ops
