"""Topics of exported forms: codes that were compared with the integer reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.result import Result
from benchmarks.tables import Table
from benchmarks.topics.figures import Bars
from benchmarks.topics.topic import Topic
from qgraph.words import counted

TITLE, NOT_TRIED = "Codes compared", "not tried: "
SHOWN = "int32-bias"  # the profile that every form of any profile supports
ColumnOf = Callable[[Mapping[str, Any]], str]


def _form(row: Mapping[str, Any]) -> str:
    return str(row["form"])


def _executor(row: Mapping[str, Any]) -> str:
    """Profile and executor of a row, without the executor's version."""
    return f"{row['profile']}: {row['executor'].rpartition(' ')[0]}"


def _millions(table: Table, column: ColumnOf) -> Table:
    """Millions of codes by network and column."""
    compared = [row for row in table.rows if row["elements"] is not None]
    headings = dict.fromkeys(column(row) for row in compared)
    made = Table(table.title, {"network": "", **dict.fromkeys(headings, ".3g"), "different": ""})
    for network in dict.fromkeys(row["network"] for row in compared):
        of_network = [row for row in compared if row["network"] == network]
        found = {column(row): row["elements"] / 1e6 for row in of_network}
        different = sum(row["different"] for row in of_network)
        made.add(network, *(found.get(heading) for heading in headings), str(different))
    made.notes = [*_refusals(table), *_behind_floats(compared), *_faults(table)]
    return made


def _refusals(table: Table) -> list[str]:
    """The networks that forms refuse, and those that were not tried, with the profile."""
    networks: dict[tuple[str, str, str], list[str]] = {}
    for row in table.rows:
        if row["refused"]:
            _, untried, why = row["refused"].partition(NOT_TRIED)
            key = ("not tried in" if untried else "refused by", row["profile"], row["form"])
            name = f"{row['network']} ({why})" if untried else row["network"]
            networks.setdefault(key, []).append(name)
    forms: dict[tuple[str, str, str], list[str]] = {}
    for (verb, profile, form), names in networks.items():
        forms.setdefault((verb, profile, "; ".join(dict.fromkeys(names))), []).append(f"`{form}`")
    return [
        f"{verb} {', '.join(found)} with profile `{profile}`: {names}"
        for (verb, profile, names), found in forms.items()
    ]


def _behind_floats(rows: list[dict[str, Any]]) -> list[str]:
    codes, moved = (sum(r[k] or 0 for r in rows) for k in ("behind float ops", "one step off"))
    if not codes:
        return []
    return [
        f"executors made {codes:,} codes behind float ops themselves; {moved:,} of them are one "
        "step from the reference's, which continues from the executor's"
    ]


def _faults(table: Table) -> list[str]:
    faults = [f"{r['network']}, {r['form']}: {r['fault']}" for r in table.rows if r["fault"]]
    return [f"{counted(len(faults), 'fault')}: {'; '.join(faults)}"] if faults else []


def _totals(column: ColumnOf) -> Callable[[Result], Table]:
    def totals(result: Result) -> Table:
        compared = [r for r in result.table(TITLE).rows if r["elements"] is not None]
        made = Table("", {"form": "", "billions": ".3g"})
        for name in dict.fromkeys(map(column, compared)):
            made.add(name, sum(r["elements"] for r in compared if column(r) == name) / 1e9)
        return made

    return totals


def _headline(result: Result) -> str:
    rows = [r for r in result.table(TITLE).rows if r["elements"] is not None]
    compared, different = (sum(row[key] for row in rows) for key in ("elements", "different"))
    networks = len({row["network"] for row in rows})
    return f"{compared / 1e9:.1f} billion codes of {networks} networks compared, {different} differ"


TOPICS = (
    Topic(
        "forms",
        "Every form, code by code",
        _headline,
        "plain quantization, two profiles; forms that support networks of any profile",
        lambda result: _millions(result.table(TITLE).where(profile=SHOWN), _form),
        _totals(_form),
        Bars("billions of codes compared with the integer reference"),
    ),
    Topic(
        "target_forms",
        "TFLite, TOSA and XINT8, code by code",
        _headline,
        "plain quantization, by profile; in LiteRT, TFLM, the TOSA reference model and ONNX "
        "Runtime",
        lambda result: _millions(result.table(TITLE), _executor),
        _totals(_executor),
        Bars("billions of codes compared with the integer reference"),
    ),
)
