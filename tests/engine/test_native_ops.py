"""The native extension has the ops that qgraph defines; all of its parts have cases for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qgraph import kernels
from qgraph.backends.engine.engine import check_ops
from qgraph.errors import UnsupportedError
from qgraph.program.ops import OPS

ENGINE = Path(__file__).parents[2] / "fused_ops" / "engine"


def test_the_extension_has_the_ops_of_the_definitions() -> None:
    native = kernels.native_engine()
    if native is None:
        pytest.skip("the extension is not built")
    check_ops(native.OPS)


@pytest.mark.parametrize("op", OPS)
def test_an_extension_that_lacks_an_op_is_refused_by_its_name(op: str) -> None:
    with pytest.raises(UnsupportedError, match=f"has the op {op}: it was built from other"):
        check_ops([name for name in OPS if name != op])


def test_an_extension_that_has_more_ops_is_refused_by_their_name() -> None:
    with pytest.raises(UnsupportedError, match="has abs where qgraph has the op nothing"):
        check_ops([*OPS, "abs"])


def test_codes_are_places() -> None:
    """Tables of ops.h are indexed by code."""
    assert [op.code for op in OPS.values()] == [*range(len(OPS))]


@pytest.mark.parametrize("path", sorted(ENGINE.rglob("*.[ch]*")), ids=lambda path: path.name)
def test_no_switch_over_ops_has_a_catch_all(path: Path) -> None:
    """A `default` would hide a missing op from the compiler."""
    for switch in re.findall(r"switch \([^{]*\) \{.*?\n    \}", path.read_text(), re.S):
        assert not ("Op::" in switch and "default:" in switch), switch
