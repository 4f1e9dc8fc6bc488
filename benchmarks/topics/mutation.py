"""The topic of mutation tests."""

from __future__ import annotations

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic


def _survivors(result: Result) -> Table:
    """The survivors: code before and after the change, one below the other."""
    table = result.table("Survivors")
    columns = dict.fromkeys(("place", "change", "reason"), "")
    made = Table(table.title, columns, notes=list(result.table("Score").notes))
    for row in table.rows:
        made.add(row["place"], f"`{row['before']}`<br>becomes `{row['after']}`", row["reason"])
    return made


def _headline(result: Result) -> str:
    every = result.table("Score").row(code="all")
    return f"{every['noticed']:.1%} of {every['mutants']} changes of the code are noticed"


MUTATION = Topic(
    "mutation",
    "Do the tests notice?",
    _headline,
    "one operator, number or word of the code that has to be exact; each survivor has a reason why "
    "it computes the same",
    _survivors,
    lambda result: result.table("Score").only("code", "killed", "too slow", "survived"),
    Bars("mutants", stacked=True),
)

TOPICS = (MUTATION,)
