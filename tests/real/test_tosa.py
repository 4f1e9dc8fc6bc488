"""Real networks for profile `tosa`: every tensor of the file is the reference's."""

import pytest

from qgraph.backends.tosa.tosa_form import TosaForm
from qgraph.compiler import quantize
from qgraph.exact.reference import Reference
from qgraph.program import lower
from qgraph.quant.profile import load_profile
from tests.helpers.forms import assert_form, needs_tool
from tests.helpers.real_networks import INTEGER, model, samples

pytestmark = [pytest.mark.real, needs_tool("tosa")]


@pytest.mark.parametrize("name", INTEGER)
def test_networks(name: str) -> None:
    profile = load_profile("tosa")
    result = quantize(model(name), samples(name), profile=profile, plan="method=max")
    program = lower(result.graph)
    feeds = {result.graph.inputs[0]: samples(name)[:1]}
    codes = Reference(result.graph).run(feeds, [e.tensor for e in program.entries])
    given = {name: code.codes for name, code in codes.items()}
    assert assert_form(TosaForm(), program, codes=given) > 10**5
