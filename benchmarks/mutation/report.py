"""docs/mutation.md: the score, and every survivor with the reason why no test has to fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.mutation.mutants import TARGETS
from benchmarks.mutation.trial import KILLED, SURVIVED, TIMEOUT

REASONS = Path(__file__).parent / "survivors.yaml"
ENDS = (KILLED, TIMEOUT, SURVIVED)
HEAD = """# Do the tests notice?

A mutant is a copy of one source file with one operator, number or word changed. A test suite that
passes on a mutant has not noticed: either no test looks there, or the change makes no difference.

    pip install 'qgraph-compiler[mutation]'
    python -m benchmarks.mutation run --count {count} --seed {seed}
    python -m benchmarks.mutation report

`run` draws mutants from all places of the code below that an operator of
[cosmic-ray](https://cosmic-ray.readthedocs.io) can change, each place with the same probability. A
place is a token and a kind of change; type annotations, which nothing evaluates, are left out, and
so is `is` in place of `==`. Each mutant meets the tests that run its line, fastest first, until one
fails or takes more than three times as long as without it. The drawing depends on the seed and on
the text of each place, not on its line number, so an edit leaves most of the sample as it was, and
`run --again` tries only what is new or survived before. `report` writes this page.

## Score
"""


def report(results: Sequence[Mapping[str, Any]], facts: Mapping[str, object]) -> str:
    """The page, as Markdown. `facts`: commit, count, seed."""
    reasons = read_reasons()
    survivors = [one for one in results if one["ended"] == SURVIVED]
    rows = [
        _row(target, [r for r in results if r["path"].startswith(target)]) for target in TARGETS
    ]
    known = sum(reason_of(reasons, one) is not None for one in survivors)
    share = f"{known} of {len(survivors)} survivors are explained below"
    parts = [
        HEAD.format(count=facts["count"], seed=facts["seed"]),
        f"{len(results)} mutants, seed {facts['seed']}, commit {facts['commit']}: "
        f"**{_share(results)} noticed**; {share}.",
        "",
        "| code | mutants | killed | too slow | survived | noticed |",
        "|---|---|---|---|---|---|",
        *rows,
        _row("all", results),
        "",
        "## Survivors",
        "",
    ]
    for one in survivors:
        reason = reason_of(reasons, one) or "**No test notices, and no reason is known.**"
        parts += [
            f"- `{one['path']}`, line {one['lines'][0]}: {reason}",
            "",
            f"      {one['before']}",
            f"      {one['after']}",
            "",
        ]
    return "\n".join(parts).rstrip() + "\n"


def read_reasons() -> list[dict[str, str]]:
    """Why mutants may survive: entries of `path`, `before`, `after` (may be left out), `why`."""
    found: list[dict[str, str]] = yaml.safe_load(REASONS.read_text("utf-8")) or []
    return found


def reason_of(reasons: Sequence[Mapping[str, str]], mutant: Mapping[str, Any]) -> str | None:
    """The reason that is known for a survivor."""
    for reason in reasons:
        same = all(mutant[key] == reason[key] for key in ("path", "before"))
        if same and reason.get("after", mutant["after"]) == mutant["after"]:
            return reason["why"]
    return None


def _row(name: str, results: Sequence[Mapping[str, Any]]) -> str:
    counts = [sum(one["ended"] == end for one in results) for end in ENDS]
    cells = [len(results), *counts, _share(results)]
    return f"| `{name}` | " + " | ".join(map(str, cells)) + " |"


def _share(results: Sequence[Mapping[str, Any]]) -> str:
    noticed = sum(one["ended"] != SURVIVED for one in results)
    return f"{100 * noticed / len(results):.1f} %" if results else "-"
