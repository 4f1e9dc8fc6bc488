"""The score of the tests, and every survivor with the reason why no test needs to detect it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.mutation.mutants import TARGETS
from benchmarks.mutation.trial import KILLED, SURVIVED, TIMEOUT
from benchmarks.tables import Table

REASONS = Path(__file__).parent / "survivors.yaml"
ENDS = (KILLED, TIMEOUT, SURVIVED)


def tables(results: Sequence[Mapping[str, Any]], drawn: Mapping[str, object]) -> Iterator[Table]:
    """The score by file, and the survivors. `drawn`: commit and seed of the sample."""
    score = Table(
        "Score",
        {"code": "", **dict.fromkeys(("mutants", "killed", "too slow", "survived"), "d"),
         "noticed": ".1%"},
        notes=[f"{len(results)} mutants, seed {drawn['seed']}, drawn at commit {drawn['commit']}"],
    )  # fmt: skip
    parts = {target: [r for r in results if r["path"].startswith(target)] for target in TARGETS}
    for code, found in (*parts.items(), ("all", results)):
        counts = [sum(one["ended"] == end for one in found) for end in ENDS]
        share = 1 - counts[-1] / len(found) if found else None
        score.add(code, len(found), *counts, share)
    yield score
    survivors = Table("Survivors", dict.fromkeys(("place", "before", "after", "reason"), ""))
    reasons = read_reasons()
    for one in (r for r in results if r["ended"] == SURVIVED):
        reason = reason_of(reasons, one) or "No test notices, and no reason is known."
        place = f"{one['path']}, line {one['lines'][0]}"
        survivors.add(place, one["before"], one["after"], reason)
    yield survivors


def read_reasons() -> list[dict[str, str]]:
    """Reasons why mutants may survive: entries of `path`, `before`, `after` (optional), `why`."""
    found: list[dict[str, str]] = yaml.safe_load(REASONS.read_text("utf-8")) or []
    return found


def reason_of(reasons: Sequence[Mapping[str, str]], mutant: Mapping[str, Any]) -> str | None:
    """The known reason of a survivor."""
    for reason in reasons:
        same = all(mutant[key] == reason[key] for key in ("path", "before"))
        if same and reason.get("after", mutant["after"]) == mutant["after"]:
            return reason["why"]
    return None
