"""Keep the rows of a long table in the cache, so that an interrupted run continues."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.registry import cache
from benchmarks.result import commit
from qgraph.files import write_whole

# Code that counts in addition to the product.
MEASURING = (
    "benchmarks/real", "benchmarks/families", "benchmarks/peers", "benchmarks/effort_time.py",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Rows that are measured together, such as those of a network, and a note on its images."""

    rows: list[list[Any]]
    note: str


def resumed(
    title: str, parts: Mapping[str, Callable[[], Part]], settings: Sequence[str] = ()
) -> Iterator[Part]:
    """Measure the parts in turn. Parts that this commit has measured before are read.

    Nothing is read if the working tree differs from its commit. settings: what the parts depend on.
    """
    file = cache() / "rows" / f"{title}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    asked: dict[str, Any] = {"commit": commit(*MEASURING), "settings": [*settings]}
    known: dict[str, Any] = {}
    if file.exists() and not asked["commit"].endswith("-dirty"):
        saved = json.loads(file.read_text("utf-8"))
        known = saved["parts"] if saved["asked"] == asked else {}
    for name, measure in parts.items():
        if name not in known:
            print(f"{name} ...", file=sys.stderr, flush=True)
            known[name] = asdict(measure())
            text = json.dumps({"asked": asked, "parts": known}, indent=1)
            write_whole(file, f"{text}\n".encode())
        yield Part(**known[name])
