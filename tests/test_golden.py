"""Files that are made from definitions are what the definitions make."""

from __future__ import annotations

from tests.helpers import golden
from tests.helpers.sources import needs_sources

pytestmark = needs_sources


def test_golden_files_are_up_to_date() -> None:
    assert not golden.stale(), "run `make golden`"


def test_a_golden_file_that_differs_is_named(monkeypatch) -> None:
    monkeypatch.setattr(golden, "GOLDEN", {"fused_ops/engine/ops.h": lambda: b"other"})
    assert golden.stale() == ["fused_ops/engine/ops.h"]
