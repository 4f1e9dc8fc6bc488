"""Real networks by the integer engine: the outputs of the integer reference, to the bit."""

import numpy as np
import pytest

from qgraph import kernels
from qgraph.errors import UnsupportedError
from tests.helpers.real_networks import IN_FLOAT, INTEGER, PROFILES, integer_program

if kernels.native_engine() is None:
    pytest.skip("the native extension isn't built", allow_module_level=True)

from qgraph.backends.engine import Engine, levels
from qgraph.runtime import Session

pytestmark = pytest.mark.real


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", INTEGER)
def test_outputs_are_those_of_the_reference(name, profile) -> None:
    result, program, feeds = integer_program(name, profile)
    wanted = result.reference().outputs(feeds)
    for level in levels():
        for threads, fuse in ((1, True), (2, True), (1, False)):
            if level == "plain" and not fuse:
                continue  # slow, and small networks see it
            engine = Engine.of(program, threads, level, fuse)
            found = Session(result.graph, program, engine).run(feeds)
            assert found.keys() == wanted.keys()
            for output, array in wanted.items():
                np.testing.assert_array_equal(found[output], array, f"{level} {threads} {fuse}")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_network_with_float_ops_inside_has_no_program(profile) -> None:
    with pytest.raises(UnsupportedError, match="`pow` is computed in float between integer layers"):
        integer_program(IN_FLOAT, profile)
