"""Print what passes did to a graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from qgraph.cli.console import Names, console, print_table
from qgraph.passes import PassResult
from qgraph.rewrite.trace import Refusal, Rewrite, without_numbers

NAMES_SHOWN = 3


def print_passes_run(results: Sequence[PassResult], title: str = "what each pass would do") -> None:
    """A row for each pass."""
    print_table(
        title,
        ("=pass", ">changes", ">refusals"),
        [(r.name, str(r.changes or "-"), str(r.refusals or "-")) for r in results],
    )


def print_rewrites(rewrites: Sequence[Rewrite]) -> None:
    """Print the nodes before and after each rewrite."""
    out = console()
    for name, group in groupby(rewrites, key=lambda r: r.pass_name):
        found = list(group)
        out.print(f"{name}, {len(found)} rewrites", style="bold", soft_wrap=True)
        for rewrite in found:
            is_named = rewrite.before.startswith(f"%{rewrite.node} =")
            out.print(f"  {rewrite.rule}" + f" at {rewrite.node}" * (not is_named), soft_wrap=True)
            for sign, side, style in (("-", rewrite.before, "red"), ("+", rewrite.after, "green")):
                for line in side.splitlines():
                    out.print(f"    {sign} {without_numbers(line)}", style=style, soft_wrap=True)
        out.print()


def print_refusals(refusals: Sequence[Refusal]) -> None:
    """Refusals with the same reason in one row."""
    alike: dict[tuple[str, str], list[str]] = {}
    for refusal in refusals:
        alike.setdefault((refusal.pass_name, refusal.reason), []).append(refusal.node)
    if alike:
        print_table(
            "refused, and why",
            ("=pass", ">count", "nodes", "reason"),
            [
                (name, str(len(nodes)), Names(*first_names(nodes)), reason)
                for (name, reason), nodes in alike.items()
            ],
        )


def first_names(nodes: list[str]) -> list[str]:
    """The first names, and how many more there are."""
    rest = len(nodes) - NAMES_SHOWN
    return [*nodes[:NAMES_SHOWN], f"and {rest} more"] if rest > 1 else nodes
